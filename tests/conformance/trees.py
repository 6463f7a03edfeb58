"""Reading and changing JSON trees by path, and putting variables into them."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Path = str | Sequence[str]


def path_of(text: Path) -> list[str]:
    """A path: dotted text, or a list for keys that hold dots; digits index lists; k[a=b] finds a list item."""
    return [part for part in re.split(r"\.(?![^\[]*\])", text) if part] if isinstance(text, str) else list(text)


def dig(doc: Any, path: Path, default: Any = None) -> Any:
    """The value at a path, or the default."""
    parts = path_of(path)
    for index, part in enumerate(parts):
        if part == "*":  # the rest of the path in every item of a list, sorted
            if not isinstance(doc, list):
                return default
            return sorted((dig(item, parts[index + 1 :]) for item in doc), key=lambda value: json.dumps(value, sort_keys=True))
        doc = _step(doc, part)
        if doc is None:
            return default
    return doc


def _step(doc: Any, part: str) -> Any:
    match = re.fullmatch(r"(.*)\[(.*?)=(.*)\]", part)
    if match:
        doc = doc.get(match[1]) if match[1] and isinstance(doc, dict) else doc
        return next((item for item in doc if str(dig(item, match[2])) == match[3]), None) if isinstance(doc, list) else None
    if isinstance(doc, list):
        return doc[int(part)] if part.isdigit() and int(part) < len(doc) else None
    return doc.get(part) if isinstance(doc, dict) else None


def put(doc: Any, path: Path, value: Any) -> None:
    """Set the value at a path; ``<delete>`` removes it."""
    parts = path_of(path)
    for part, following in itertools.pairwise(parts):
        doc = doc[int(part)] if isinstance(doc, list) else doc.setdefault(part, [] if following == "0" else {})
    last = parts[-1]
    if isinstance(doc, list):
        index = int(last)
        if value == "<delete>":
            del doc[index]
        elif index == len(doc):
            doc.append(value)
        else:
            doc[index] = value
    elif value == "<delete>":
        doc.pop(last, None)
    else:
        doc[last] = value


def walk(doc: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every (path, value) of the leaves, in document order: scalars, and objects and lists that are empty."""
    if doc and isinstance(doc, dict):
        for key in sorted(doc):
            yield from walk(doc[key], (*path, key))
    elif doc and isinstance(doc, list):
        for index, item in enumerate(doc):
            yield from walk(item, (*path, index))
    else:
        yield path, doc


def expand(value: Any, names: Mapping[str, Any]) -> Any:
    """Put variables into strings; a string that is only $name becomes the variable's value. Keys stay as they are."""
    if isinstance(value, str):
        whole = re.fullmatch(r"\$\{?(\w+)\}?", value)
        if whole and whole[1] in names:
            found = names[whole[1]]
            return found if isinstance(found, bytes) else json.loads(json.dumps(found))
        return re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda match: str(names.get(match[1] or match[2], match[0])), value)
    if isinstance(value, dict):
        return {key: expand(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item, names) for item in value]
    return value
