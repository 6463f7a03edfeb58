"""Structs that are written in place (CRDs have no references) become definitions of their own, named after their way from the kind."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Container
from typing import Any, Final

JSONObject = dict[str, Any]

#: What stays with the field that a struct was lifted from; everything else is said of its class.
_OF_THE_FIELD: Final = ("default", "nullable")
_PLURAL_ES: Final = re.compile(r"(ss|x|z|ch|sh)es$")
_NO_PLURAL: Final = re.compile(r"(ss|us|is|as)$|^s$")


def lift(definitions: dict[str, JSONObject], stays: Callable[[JSONObject], bool] = lambda _: False) -> dict[str, JSONObject]:
    """All definitions, with references for structs in place: ``spec`` of Widget becomes ``WidgetSpec``, its ``ports`` ``WidgetSpecPort``.

    ``stays`` tells of structs that are left in place, since a class for them is known.
    """
    lifted: dict[str, JSONObject] = {}

    def visit(node: JSONObject, name: str) -> JSONObject:
        result = dict(node)
        if "properties" in node:
            result["properties"] = {wire: place(child, name + _title(wire)) for wire, child in node["properties"].items()}
        if isinstance(node.get("items"), dict):
            result["items"] = place(node["items"], _item(name))
        if isinstance(node.get("additionalProperties"), dict):
            result["additionalProperties"] = place(node["additionalProperties"], _item(name))
        return result

    def place(node: JSONObject, name: str) -> JSONObject:
        if stays(node):
            return node
        if not node.get("properties"):
            return visit(node, name)
        name = _free(name, definitions, lifted)
        lifted[name] = {}
        said = {key: value for key, value in node.items() if key not in _OF_THE_FIELD}
        lifted[name] = visit(said, name)
        return {"$ref": name} | {key: node[key] for key in _OF_THE_FIELD if key in node}

    own: dict[str, JSONObject] = {}
    for name, definition in definitions.items():
        properties = dict(definition.get("properties") or {})
        # What a kind says of its metadata stays in place: there is a class for that.
        metadata = properties.pop("metadata", None)
        own[name] = visit({**definition, "properties": properties}, name) if properties else visit(definition, name)
        if metadata is not None:
            own[name]["properties"] = {**(own[name].get("properties") or {}), "metadata": metadata}
    return own | lifted


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
