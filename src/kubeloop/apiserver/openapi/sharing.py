"""Parameters that many operations have, written once in a document of version 2 and referred to: it is half as long then.

Source: kube-openapi builder/parameters.go. Which ones stay where they are is what upstream leaves there.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from typing import Any, Final

import msgspec

from kubeloop.apiserver.openapi.schemas import DEFINITIONS

JSONObject = dict[str, Any]

_PARAMETERS: Final = "#/parameters/"
#: kubectl looks for these in the operations themselves; a name's description names the kind.
_OWN: Final = frozenset({("query", "name"), ("path", "name"), ("query", "fieldValidation"), ("query", "dryRun")})
_COMMON_TYPES: Final = f"{DEFINITIONS}io.k8s.apimachinery"


def share_parameters(paths: JSONObject) -> JSONObject:
    """Puts references into ``paths``, in place; gives the parameters that they lead to, by name."""
    shared: JSONObject = {}
    references: dict[bytes, JSONObject] = {}
    for item in paths.values():
        for holder in (item, *item.values()):
            if isinstance(holder, dict) and "parameters" in holder:
                holder["parameters"] = [_reference(one, shared, references) for one in holder["parameters"]]
    return dict(sorted(shared.items()))


def _reference(parameter: JSONObject, shared: JSONObject, references: dict[bytes, JSONObject]) -> JSONObject:
    if (parameter["in"], parameter["name"]) in _OWN:
        return parameter
    if parameter["in"] == "body" and not parameter["schema"].get("$ref", "").startswith(_COMMON_TYPES):
        return parameter
    key = msgspec.json.encode(parameter, order="sorted")
    reference = references.get(key)
    if reference is None:
        name = f"{parameter['name']}-{urlsafe_b64encode(hashlib.sha256(key).digest())[:8].decode()}"
        shared[name] = parameter
        reference = references[key] = {"$ref": _PARAMETERS + name}
    return reference
