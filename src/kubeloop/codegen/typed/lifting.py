"""Structs that are written in place (CRDs have no references) become definitions of their own, named after their way from the kind."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Container
from typing import Any, Final

JSONObject = dict[str, Any]

#: What stays with the field that a struct was lifted from; everything else is said of its class.
_OF_THE_FIELD: Final = ("default", "nullable")
#: From the definition's name to where a struct stands.
Way = tuple[str, ...]
#: Characters of a class name; of a longer one these last steps are kept.
_LONGEST: Final = 60
_LAST: Final = 3
_PLURAL_ES: Final = re.compile(r"(ss|x|z|ch|sh)es$")
_NO_PLURAL: Final = re.compile(r"(ss|us|is|as)$|^s$")


def lift(definitions: dict[str, JSONObject], stays: Callable[[JSONObject], bool] = lambda _: False) -> dict[str, JSONObject]:
    """All definitions, with references for structs in place: ``spec`` of Widget becomes ``WidgetSpec``, its ``ports`` ``WidgetSpecPort``.

    ``stays`` tells of structs that are left in place, since a class for them is known.
    """
    lifted: dict[str, JSONObject] = {}

    def visit(node: JSONObject, way: Way) -> JSONObject:
        result = dict(node)
        if "properties" in node:
            result["properties"] = {wire: place(child, (*way, _title(wire))) for wire, child in node["properties"].items()}
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                result[key] = place(node[key], (*way[:-1], _item(way[-1])))
        return result

    def place(node: JSONObject, way: Way) -> JSONObject:
        if stays(node):
            return node
        if not node.get("properties"):
            return visit(node, way)
        name = _free(_name(way), definitions, lifted)
        lifted[name] = {}
        said = {key: value for key, value in node.items() if key not in _OF_THE_FIELD}
        lifted[name] = visit(said, way)
        return {"$ref": name} | {key: node[key] for key in _OF_THE_FIELD if key in node}

    own: dict[str, JSONObject] = {}
    for name, definition in definitions.items():
        properties = dict(definition.get("properties") or {})
        # What a kind says of its metadata stays in place: there is a class for that.
        metadata = {"metadata": properties.pop("metadata")} if "metadata" in properties else {}
        own[name] = visit({**definition, "properties": properties} if metadata else definition, (name,))
        if metadata:
            own[name]["properties"] |= metadata
    return own | lifted


def _name(way: Way) -> str:
    """The kind and the whole way; of a long one only its last steps."""
    whole = "".join(way)
    if len(whole.rpartition(".")[2]) <= _LONGEST:
        return whole
    return way[0] + "".join(way[-_LAST:])


def _free(name: str, *taken: Container[str]) -> str:
    """The name itself, or with the first number from 2 on that nobody has."""
    numbered = (name if number == 1 else f"{name}{number}" for number in itertools.count(1))
    return next(one for one in numbered if not any(one in names for names in taken))


def _title(wire: str) -> str:
    """``hostAliases`` as a part of a class name."""
    parts = re.split(r"[\W_]+", wire)
    return "".join(part[:1].upper() + part[1:] for part in parts)


def _item(name: str) -> str:
    """One of ``...Ports``: ``...Port``. A name that is no plural gets ``Item``."""
    if name.endswith("ies") and len(name) > 4:
        return f"{name[:-3]}y"
    if _PLURAL_ES.search(name):
        return name[:-2]
    if name.endswith("s") and not _NO_PLURAL.search(name):
        return name[:-1]
    return f"{name}Item"
