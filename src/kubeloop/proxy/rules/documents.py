"""Reads YAML and JSON files into documents that know the line of each field, so that a mistake can name it.

Values are those of ``kubeloop.codec.yaml``: ``yes`` is a boolean, a time is text, and limits on nesting, size and aliases hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from kubeloop.codec.yaml import Loader
from kubeloop.codec.yaml_limits import check_limits
from kubeloop.meta.errors import DecodeError
from kubeloop.proxy.rules.errors import Mistakes
from kubeloop.types import JSONValue

#: A field of a document: names of members and indexes of items.
FieldKey: TypeAlias = tuple[str | int, ...]

#: Suffixes of the files that are read from a folder.
SUFFIXES: Final = (".yaml", ".yml", ".json")
#: Bytes of a file. A ConfigMap has at most 1 MiB.
MAX_BYTES: Final = 8 * 1024 * 1024
_MERGE: Final = "<<"


class YamlDocument:
    """One document of a file: its value, and the line of each field.

    >>> document = read_documents("a: 1\\nb: [2]", "x.yaml", Mistakes())[0]
    >>> document.value, document.line(("b", 0))
    ({'a': 1, 'b': [2]}, 2)
    """

    __slots__ = ("_base", "_node", "file", "value")

    def __init__(self, file: str, value: JSONValue, node: Any, base: FieldKey = ()) -> None:
        """Create it.

        Args:
            file: The name of the file.
            value: The value of the document.
            node: The document's node of the parser.
            base: Where the value is in the node.
        """
        self.file = file
        self.value = value
        self._node = node
        self._base = base

    def line(self, key: FieldKey = ()) -> int:
        """Return the line of a field, or of the closest field around it that exists."""
        node = self._node
        line: int = node.start_mark.line
        for part in (*self._base, *key):
            if isinstance(node, yaml.MappingNode):
                # The last of equal keys counts, as for the value.
                pair = next((pair for pair in reversed(node.value) if pair[0].value == part), None)
                if pair is None:
                    break
                line, node = pair[0].start_mark.line, pair[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line
            else:
                break
        return line + 1

    def items(self) -> Iterator[YamlDocument]:
        """Yield the items of a ``List`` of v1 as documents, or the document itself if it is none.

        ``items:`` without a value is an empty list, as for API servers: an editor leaves it where the last item was.
        """
        value = self.value
        if isinstance(value, dict) and (value.get("apiVersion"), value.get("kind")) == ("v1", "List") and "items" in value:
            items = [] if value["items"] is None else value["items"]
        else:
            items = None
        if isinstance(items, list):
            for index, item in enumerate(items):
                yield YamlDocument(self.file, item, self._node, ("items", index))
        else:
            yield self


def read_files(path: Path, mistakes: Mistakes) -> list[YamlDocument]:
    """Return the documents of a file, or of all YAML and JSON files of a folder by name.

    Hidden files are left out: editors write them, and mounted ConfigMaps contain folders with such names.
    """
    try:
        if not path.is_dir():
            return _read_file(path, mistakes)
        found = [
            entry for entry in sorted(path.iterdir()) if entry.suffix in SUFFIXES and not entry.name.startswith(".") and entry.is_file()
        ]
    except OSError as error:
        mistakes.add(str(path), 1, f"cannot be read: {error.strerror or error}")
        return []
    if not found:
        mistakes.add(str(path), 1, f"the folder contains no file; expected {', '.join(f'*{suffix}' for suffix in SUFFIXES)}")
    return [document for file in found for document in _read_file(file, mistakes)]


def read_documents(text: str, file: str, mistakes: Mistakes) -> list[YamlDocument]:
    """Return the documents of a text that are not empty. A text that is not YAML or has no documents is a mistake.

    Args:
        text: A YAML stream or a JSON document.
        file: The name of the file, for mistakes.
        mistakes: Receives the mistakes.
    """
    try:
        _check_limits(text)
        documents = list(_documents(text, file, mistakes))
    except DecodeError as error:
        mistakes.add(file, 1, str(error).removeprefix("yaml: "))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        mistakes.add(file, 1 if mark is None else mark.line + 1, str(getattr(error, "problem", None) or error))
    except (RecursionError, ValueError) as error:
        mistakes.add(file, 1, str(error))
    else:
        if not documents:
            # An editor truncates a file before it writes it, and a full disk leaves it so: that must not show what rules hide.
            mistakes.add(file, 1, "the file is empty; expected YAML or JSON documents (a List may have no items)")
        return documents
    return []


def _read_file(path: Path, mistakes: Mistakes) -> list[YamlDocument]:
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            mistakes.add(str(path), 1, f"the file has more than {MAX_BYTES // 1024**2} MiB")
            return []
        text = content.decode("utf-8-sig")
    except OSError as error:
        mistakes.add(str(path), 1, "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror or error}")
        return []
    except UnicodeDecodeError as error:
        mistakes.add(str(path), content.count(b"\n", 0, error.start) + 1, "the file is not UTF-8 text")
        return []
    return read_documents(text, str(path), mistakes)


def _check_limits(text: str) -> None:
    loader = Loader(text)
    try:
        check_limits(loader)
    finally:
        loader.dispose()


def _documents(text: str, file: str, mistakes: Mistakes) -> Iterator[YamlDocument]:
    loader = Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            _check_keys(node, file, mistakes)
            value = loader.construct_document(node)
            if value is not None:
                yield YamlDocument(file, value, node)
    finally:
        loader.dispose()


def _check_keys(root: Any, file: str, mistakes: Mistakes) -> None:
    """Report keys that a mapping has twice: the first value would be lost. A node that aliases repeat is checked once."""
    left, seen = [root], set()
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            left.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            names = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in names and key.value != _MERGE:
                        mistakes.add(file, key.start_mark.line + 1, f'the field "{key.value}" appears twice in one mapping')
                    names.add(key.value)
                left.append(value)
