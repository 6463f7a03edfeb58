"""From discovery answers and OpenAPI v2 paths to the resources of the schema document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.meta.kinds import GroupVersion, GroupVersionKind, GroupVersionResource
from kubeloop.schema import GroupInfo, ResourceInfo, SubresourceInfo

JSONObject = dict[str, Any]

#: What an ``x-kubernetes-action`` of OpenAPI v2 is called as a verb of discovery.
_VERBS = {"post": "create", "put": "update", "watchlist": "watch"}


def groups(aggregated: list[JSONObject]) -> tuple[GroupInfo, ...]:
    """Groups of ``APIGroupDiscoveryList`` items, the core group among them, in their order."""
    return tuple(
        GroupInfo(item["metadata"].get("name", ""), tuple(version["version"] for version in item["versions"])) for item in aggregated
    )


def served_resources(aggregated: list[JSONObject], legacy: JSONObject, selectors: dict[str, list[str]]) -> Iterator[ResourceInfo]:
    """Resources of ``APIGroupDiscoveryList`` items.

    ``legacy`` maps paths to ``APIResourceList`` answers (for the storage version hashes), ``selectors`` collection paths to the
    field labels that they accept.
    """
    for item in aggregated:
        for version in item["versions"]:
            gv = GroupVersion(item["metadata"].get("name", ""), version["version"])
            hashes = {resource["name"]: resource.get("storageVersionHash", "") for resource in legacy.get(gv.path, {}).get("resources", ())}
            for resource in version["resources"]:
                name = resource["resource"]
                yield ResourceInfo(
                    gvr=GroupVersionResource(*gv, name),
                    kind=resource["responseKind"]["kind"],
                    singular=resource["singularResource"],
                    namespaced=resource["scope"] == "Namespaced",
                    verbs=tuple(resource["verbs"]),
                    short_names=tuple(resource.get("shortNames", ())),
                    categories=tuple(resource.get("categories", ())),
                    subresources=tuple(
                        SubresourceInfo(sub["subresource"], _response_kind(sub["responseKind"], gv), tuple(sub["verbs"]))
                        for sub in resource.get("subresources", ())
                    ),
                    selectable_fields=tuple(selectors.get(f"{gv.path}/{name}", ())),
                    storage_version_hash=hashes.get(name, ""),
                )


def _response_kind(kind: dict[str, str], gv: GroupVersion) -> GroupVersionKind:
    # Aggregated discovery leaves group and version empty where they are the resource's own.
    return GroupVersionKind(*((kind["group"], kind["version"]) if kind["version"] else gv), kind["kind"])


def unserved_resources(paths: JSONObject, known: dict[tuple[str, str], ResourceInfo], served: set[GroupVersion]) -> Iterator[ResourceInfo]:
    """Resources that OpenAPI v2 paths name in group versions outside ``served``.

    Paths do not tell short names and categories: those come from ``known``, the same (group, resource) in a served version.
    """
    found: dict[GroupVersionResource, _Found] = {}
    for path, item in sorted(paths.items()):
        parts = path.strip("/").split("/")
        if parts[0] != "apis" or len(parts) < 4 or parts[3] == "watch":
            continue
        gv = GroupVersion(parts[1], parts[2])
        if gv in served:
            continue
        rest = parts[3:]
        namespaced = len(rest) > 2 and rest[:2] == ["namespaces", "{namespace}"]
        rest = rest[2:] if namespaced else rest
        resource = found.setdefault(GroupVersionResource(*gv, rest[0]), _Found())
        resource.namespaced |= namespaced
        for operation in item.values():
            if isinstance(operation, dict) and "x-kubernetes-action" in operation:
                kind = operation["x-kubernetes-group-version-kind"]
                action: str = operation["x-kubernetes-action"]
                verb = _VERBS.get(action, action)
                resource.add(rest[2] if len(rest) > 2 else "", GroupVersionKind(kind["group"], kind["version"], kind["kind"]), verb)
    for gvr, resource in sorted(found.items()):
        same = known.get((gvr.group, gvr.resource))
        kind, verbs = resource.verbs.pop("")
        yield ResourceInfo(
            gvr=gvr,
            kind=kind.kind,
            singular=kind.kind.lower(),
            namespaced=resource.namespaced,
            verbs=tuple(sorted(verbs | {"watch"} if "list" in verbs else verbs)),
            short_names=same.short_names if same else (),
            categories=same.categories if same else (),
            subresources=tuple(
                SubresourceInfo(name, sub, tuple(sorted(subverbs))) for name, (sub, subverbs) in sorted(resource.verbs.items())
            ),
            served=False,
        )


class _Found:
    def __init__(self) -> None:
        self.namespaced = False
        self.verbs: dict[str, tuple[GroupVersionKind, set[str]]] = {}

    def add(self, subresource: str, kind: GroupVersionKind, verb: str) -> None:
        self.verbs.setdefault(subresource, (kind, set()))[1].add(verb)
