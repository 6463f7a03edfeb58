"""Converts objects and their parts from and to trees and YAML, for ``Model.to_dict``, ``from_dict``, ``to_yaml`` and ``from_yaml``."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec

from kubeloop.codec.changes import encode_struct
from kubeloop.codec.decoding import decode, decode_struct
from kubeloop.codec.encoding import encode, with_kind
from kubeloop.meta.errors import DecodeError, NestedTooDeeply
from kubeloop.meta.model import Model
from kubeloop.meta.resource import Resource, source_of
from kubeloop.meta.unstructured import PartialObject, Unstructured

M = TypeVar("M", bound=Model)


def tree_of(obj: Model) -> dict[str, Any]:
    """Return an object as a new tree: all fields that were read, with the changes. Only the known part of a partial object is returned.

    Raises:
        NestedTooDeeply: The document has undecoded parts that are too deep for a tree.
    """
    try:
        return msgspec.json.decode(_document(obj), type=dict[str, Any])
    except RecursionError:
        raise NestedTooDeeply(f"{type(obj).__name__}: the document is nested too deeply for Python to read it") from None


def from_tree(cls: type[M], tree: dict[str, Any]) -> M:
    """Build an object from a tree. Raises DecodeError for another kind or a field of another type, and names it."""
    if issubclass(cls, Resource):
        if not cls.kind and cls is not PartialObject:
            return cast("M", Unstructured.from_dict(tree))
        return decode(cls, _written(tree, cls))
    return decode_struct(cls, _written(tree, cls), cls.__name__)


def yaml_of(obj: Model, *, managed_fields: bool) -> str:
    from kubeloop.codec.yaml import write_yaml

    tree = tree_of(obj)
    metadata = tree.get("metadata")
    if not managed_fields and isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return write_yaml(tree)


def from_yaml(cls: type[M], text: str | bytes) -> M:
    """Build an object from YAML. Raises DecodeError if the text is not exactly one YAML document, and for the errors of ``from_tree``."""
    from kubeloop.codec.yaml import read_yaml

    found = read_yaml(text)
    if len(found) != 1:
        raise DecodeError(f"{cls.__name__}: {len(found)} documents where one is wanted; kubeloop.codec.read_yaml reads many")
    return from_tree(cls, found[0])


def _document(obj: Model) -> bytes:
    if not isinstance(obj, Resource):
        return encode_struct(obj)
    source = source_of(obj)
    if isinstance(obj, PartialObject) or (source is not None and source.partial and not isinstance(obj, Unstructured)):
        written = encode_struct(obj)
        return with_kind(written, obj) if obj.kind else written
    if isinstance(obj, Unstructured):
        return msgspec.json.encode(obj.to_dict())
    return encode(obj)


def _written(tree: dict[str, Any], cls: type[Model]) -> bytes:
    try:
        return msgspec.json.encode(tree)
    except TypeError as error:
        raise DecodeError(f"{cls.__name__}: the tree holds a value that JSON cannot represent: {error}") from None
