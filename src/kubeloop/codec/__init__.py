"""Converts objects to and from JSON and YAML: lenient reading, lossless writing, and projections (partial decoding)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeloop.codec.decoding import decode, decode_bookmark, decode_list
from kubeloop.codec.encoding import document_of, encode, require_document, to_dict

if TYPE_CHECKING:
    from kubeloop.codec.yaml import read_yaml, write_yaml

__all__ = ["decode", "decode_bookmark", "decode_list", "document_of", "encode", "read_yaml", "require_document", "to_dict", "write_yaml"]


def __getattr__(name: str) -> Any:
    # Most programs never read YAML through here, and PyYAML takes 10 ms to import.
    if name in ("read_yaml", "write_yaml"):
        from kubeloop.codec import yaml

        return getattr(yaml, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
