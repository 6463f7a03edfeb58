"""Descriptions of built-in definitions and their fields: our own short ones, or those imported from an OpenAPI document.

The project carries none of Kubernetes' prose. Users may import it (``kubeloop descriptions import``) into a file of theirs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeloop.meta.errors import ConfigError
from kubeloop.schema.common_descriptions import OF_KINDS, common_descriptions
from kubeloop.types import JSONObject

#: Texts by definition and field; the definition's own text has the empty name.
Texts = dict[str, dict[str, str]]

HINT: Final = "(This server has no description. `kubeloop descriptions import CONTEXT` imports Kubernetes' descriptions from a cluster.)"
_KINDS: Final = "x-kubernetes-group-version-kind"
#: A definition whose apiVersion, kind and metadata have the texts that upstream gives to custom resources.
_ANY_KIND: Final = "io.k8s.api.core.v1.ConfigMap"
_LONGEST: Final = 10_000
_SAVE: Final = "save one with: kubectl get --raw /openapi/v2"


class _File(msgspec.Struct):
    """The content of the file of imported descriptions: texts of definitions, without other data of the server they came from."""

    definitions: Texts
    version: int = 1


class Descriptions:
    """Adds descriptions to the schemas of OpenAPI documents. ``imported`` texts replace the built-in ones and the hint to import texts."""

    def __init__(self, imported: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._imported = imported or {}

    @cached_property
    def _texts(self) -> Mapping[str, Mapping[str, str]]:
        common = common_descriptions()
        return {name: {**common.get(name, {}), **self._imported.get(name, {})} for name in {*common, *self._imported}}

    @cached_property
    def digest(self) -> str:
        """A hash that identifies the texts."""
        return hashlib.sha256(msgspec.json.encode(self._texts, order="sorted")).hexdigest()

    def of_every_kind(self) -> dict[str, str]:
        """Return the texts of apiVersion, kind and metadata: custom resources have them too."""
        imported = self._imported.get(_ANY_KIND, {})
        return {field: imported.get(field, OF_KINDS[field]) for field in ("apiVersion", "kind", "metadata")}

    def describe(self, name: str, tree: JSONObject) -> JSONObject:
        """Set the descriptions of a definition, OpenAPI version 2 or 3, in place. A lone reference stays as it is."""
        texts = self._texts.get(name, {})
        own = texts.get("", "")
        if not self._imported:
            own = f"{own} {HINT}".strip() if tree.get(_KINDS) or not own else own
        if own:
            tree["description"] = own
        for field, schema in (tree.get("properties") or {}).items():
            text = texts.get(field) or (OF_KINDS.get(field) if tree.get(_KINDS) else None)
            if text and set(schema) != {"$ref"}:
                schema["description"] = text
        return tree


def texts_of(document: Any, name: str) -> Texts:
    """Return the descriptions in an OpenAPI document, version 2 or 3. ``name`` names the document in errors.

    Raises:
        ConfigError: The document is not OpenAPI, or none of its definitions has a description.
    """
    if not isinstance(document, dict):
        raise ConfigError(f"{name}: expected an OpenAPI document, a JSON object, found {type(document).__name__}; {_SAVE}")
    components = document.get("components")
    schemas = document.get("definitions") if "swagger" in document else components.get("schemas") if isinstance(components, dict) else None
    if not isinstance(schemas, dict) or not ("swagger" in document or "openapi" in document):
        raise ConfigError(f"{name}: not an OpenAPI document (version 2 has definitions, version 3 components.schemas); {_SAVE}")
    result = {definition: texts for definition, schema in schemas.items() if (texts := dict(_texts_in(schema, f"{name}: {definition}")))}
    if not result:
        raise ConfigError(f"{name}: no definition has a description; take the document from a real cluster, {_SAVE}")
    return result


def _texts_in(schema: Any, place: str) -> Iterator[tuple[str, str]]:
    if not isinstance(schema, dict) or not isinstance(schema.get("properties", {}), dict):
        raise ConfigError(f"{place}: expected a schema with properties; {_SAVE}")
    for field, value in [("", schema), *schema.get("properties", {}).items()]:
        text = value.get("description") if isinstance(value, dict) else None
        if text is None:
            continue
        if not isinstance(text, str):
            raise ConfigError(f"{place}.{field}: expected a text as description, found {type(text).__name__}")
        cleaned = "".join(one for one in text[:_LONGEST] if one.isprintable() or one == "\n").strip()
        if cleaned:
            yield field, cleaned


def cache_file() -> Path:
    """Return the path of imported descriptions: ``$XDG_CACHE_HOME/kubeloop/descriptions.json``, or below ``~/.cache``."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (folder if folder.is_absolute() else Path.home() / ".cache") / "kubeloop" / "descriptions.json"


def save(texts: Texts, path: Path) -> None:
    """Write texts atomically to a file that only the user can read.

    Raises:
        ConfigError: The file cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, unfinished = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(_File(texts), order="sorted"))
            Path(unfinished).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(unfinished).unlink()
            raise
    except OSError as fault:
        why = fault.strerror or str(fault)
        raise ConfigError(f"{path}: cannot write descriptions: {why}; set XDG_CACHE_HOME to a folder that you may write") from None


def load(path: Path) -> Texts:
    """Return the texts that ``save`` wrote; empty if none were imported.

    Raises:
        ConfigError: The file has another format.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as fault:
        raise ConfigError(f"{path}: cannot read descriptions: {fault.strerror}") from None
    try:
        return msgspec.json.decode(data, type=_File).definitions
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as fault:
        raise ConfigError(f"{path}: not written by kubeloop descriptions import ({fault}); delete it and import again") from None
