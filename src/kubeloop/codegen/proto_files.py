"""Reads fields of protobuf messages from ``generated.proto`` files or from a JSON document.

Supports the part of the language that Kubernetes' generator writes: flat messages of optional, repeated and map fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kubeloop.codegen.openapi import read_json
from kubeloop.meta.errors import ConfigError

SCALARS = frozenset({"string", "int32", "int64", "bool", "bytes", "double"})

_COMMENT = re.compile(r"//[^\n]*")
_PACKAGE = re.compile(r"^package ([\w.]+);", re.MULTILINE)
_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_SINGLE = re.compile(r"(optional|repeated) (\S+) (\w+) = (\d+)")
_MAP = re.compile(r"map<(\w+), (\S+)> (\w+) = (\d+)")


class ProtoField(NamedTuple):
    """A field. ``label`` is optional, repeated or map; ``type`` is the type or full message name, of the values for a map."""

    number: int
    name: str
    label: str
    type: str


#: Fields by full message name.
ProtoMessages = dict[str, list[ProtoField]]


def read_messages(sources: Iterable[Path]) -> ProtoMessages:
    """Read JSON documents (``{message: [[number, name, label, type], ...]}``, for a map ``[..., key type, value type]``) and folders with
    ``generated.proto`` files at any depth. Later sources take precedence.

    Raises:
        ConfigError: a source is missing or malformed, or has no message; the text names it.
    """
    messages: ProtoMessages = {}
    for source in sources:
        found = _folder(source) if source.is_dir() else _document(source)
        if not found:
            raise ConfigError(
                f"{source}: no protobuf message in it; name a folder with generated.proto files, as of the Go module k8s.io/api"
            )
        messages.update(found)
    return messages


def _document(path: Path) -> ProtoMessages:
    try:
        return {
            name: [ProtoField(number, field, label, types[-1]) for number, field, label, *types in fields]
            for name, fields in read_json(path).items()
        }
    except (TypeError, ValueError, IndexError) as error:
        raise ConfigError(f"{path}: not a document of message fields: {error}") from error


def _folder(folder: Path) -> ProtoMessages:
    messages: ProtoMessages = {}
    for path in sorted(folder.rglob("generated.proto")):
        text = _COMMENT.sub("", path.read_text())
        package = _PACKAGE.search(text)
        if package is None:
            raise ConfigError(f"{path}: names no package")
        for name, body in _MESSAGE.findall(text):
            messages[f"{package[1]}.{name}"] = [_field(line, package[1], path) for line in _statements(body)]
    return messages


def _statements(body: str) -> list[str]:
    lines = (" ".join(statement.split()) for statement in body.split(";"))
    return [line for line in lines if line and not line.startswith("reserved ")]


def _field(line: str, package: str, path: Path) -> ProtoField:
    single = _SINGLE.match(line)
    if single:
        return ProtoField(int(single[4]), single[3], single[1], _full(single[2], package))
    mapping = _MAP.match(line)
    if mapping and mapping[1] == "string":
        return ProtoField(int(mapping[4]), mapping[3], "map", _full(mapping[2], package))
    raise ConfigError(f'{path}: cannot read the field "{line}"')


def _full(type_: str, package: str) -> str:
    if type_ in SCALARS:
        return type_
    return type_.lstrip(".") if "." in type_ else f"{package}.{type_}"
