"""Legacy discovery, an APIResourceList, read as the aggregated form of it. Source: k8s.io/apiserver pkg/endpoints/installer.go."""

from __future__ import annotations

from typing import Any

JSONObject = dict[str, Any]


def version_of_list(tree: JSONObject, version: str) -> JSONObject:
    """An APIVersionDiscovery.

    Raises:
        KeyError, TypeError: a resource without a name, or no list.
        ValueError: a subresource is namespaced and its resource is not, or the other way round.
    """
    resources: dict[str, JSONObject] = {}
    for one in tree["resources"]:
        if "/" not in one["name"]:
            resources[one["name"]] = _resource(one)
    for one in tree["resources"]:
        name, slash, sub = one["name"].partition("/")
        if not slash:
            continue
        parent = resources.setdefault(
            name, {"resource": name, "responseKind": _kind({}), "scope": _scope(one), "singularResource": "", "verbs": []}
        )
        if parent["scope"] != _scope(one):
            raise ValueError(f"the scopes of {name} and its subresource {sub} do not match")
        shown = {"subresource": sub, "responseKind": _kind(one), "verbs": list(one.get("verbs") or ())}
        parent.setdefault("subresources", []).append(shown)
    return {"version": version, **({"resources": list(resources.values())} if resources else {})}


def _resource(one: JSONObject) -> JSONObject:
    shown: JSONObject = {
        "resource": one["name"],
        "responseKind": _kind(one),
        "scope": _scope(one),
        "singularResource": one.get("singularName", ""),
        "verbs": list(one.get("verbs") or ()),
    }
    for name in ("shortNames", "categories"):
        if one.get(name):
            shown[name] = list(one[name])
    return shown


def _kind(one: JSONObject) -> JSONObject:
    named = bool(one.get("kind"))
    return {"group": one.get("group", "") if named else "", "version": one.get("version", "") if named else "", "kind": one.get("kind", "")}


def _scope(one: JSONObject) -> str:
    return "Namespaced" if one.get("namespaced") else "Cluster"
