"""Converts discovery responses and OpenAPI v2 paths to the resources of the schema document."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from kubeloop.meta.kinds import GroupVersion, GroupVersionKind, GroupVersionResource
from kubeloop.schema import GroupInfo, ResourceInfo, SubresourceInfo
from kubeloop.types import JSONObject

#: ``x-kubernetes-action`` of OpenAPI v2 -> verb of discovery.
_VERBS = {"post": "create", "put": "update", "watchlist": "watch"}


def groups(aggregated: list[JSONObject]) -> tuple[GroupInfo, ...]:
    """Return the groups of ``APIGroupDiscoveryList`` items, the core group included, in their order."""
    return tuple(
        GroupInfo(item["metadata"].get("name", ""), tuple(version["version"] for version in item["versions"])) for item in aggregated
    )


def served_resources(aggregated: list[JSONObject], legacy: JSONObject, selectors: dict[str, list[str]]) -> Iterator[ResourceInfo]:
    """Yield the resources of ``APIGroupDiscoveryList`` items.

    ``legacy`` maps paths to ``APIResourceList`` responses (for the storage version hashes), ``selectors`` collection paths to the
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
    # Aggregated discovery leaves group and version empty if they are the resource's own.
    return GroupVersionKind(*((kind["group"], kind["version"]) if kind["version"] else gv), kind["kind"])


def resources_of_paths(paths: JSONObject, known: Iterable[ResourceInfo], served: Collection[GroupVersion] = ()) -> Iterator[ResourceInfo]:
    """Yield the resources that OpenAPI paths (version 2 or 3) name in group versions outside ``served``.

    Paths contain no short names and categories: those come from ``known``, the same resource in this or another version.
    """
    result: dict[GroupVersionResource, _Found] = {}
    for path, item in sorted(paths.items()):
        place = _place(path)
        if place is None or place.group_version in served:
            continue
        resource = result.setdefault(GroupVersionResource(*place.group_version, place.resource), _Found())
        resource.namespaced |= place.namespaced
        for operation in item.values():
            if isinstance(operation, dict) and "x-kubernetes-action" in operation:
                kind = operation["x-kubernetes-group-version-kind"]
                action: str = operation["x-kubernetes-action"]
                resource.add(place.subresource, GroupVersionKind(kind["group"], kind["version"], kind["kind"]), _VERBS.get(action, action))
    same = {info.gvr.group_resource: info for info in known}
    for gvr, resource in sorted(result.items()):
        if "" not in resource.verbs:
            continue
        kind, verbs = resource.verbs.pop("")
        other = same.get(gvr.group_resource)
        yield ResourceInfo(
            gvr=gvr,
            kind=kind.kind,
            singular=kind.kind.lower(),
            namespaced=resource.namespaced,
            verbs=tuple(sorted(verbs | {"watch"} if "list" in verbs else verbs)),
            short_names=other.short_names if other else (),
            categories=other.categories if other else (),
            subresources=tuple(
                SubresourceInfo(name, sub, tuple(sorted(subverbs))) for name, (sub, subverbs) in sorted(resource.verbs.items())
            ),
            served=False,
        )


class _Place(NamedTuple):
    group_version: GroupVersion
    resource: str
    subresource: str
    namespaced: bool


def _place(path: str) -> _Place | None:
    """Return the resource that a path template names, None if it names none."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group_version, rest = GroupVersion("", parts[1]), parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group_version, rest = GroupVersion(parts[1], parts[2]), parts[3:]
    else:
        return None
    if rest[0] == "watch":
        return None
    namespaced = len(rest) > 2 and rest[:2] == ["namespaces", "{namespace}"]
    rest = rest[2:] if namespaced else rest
    return _Place(group_version, rest[0], rest[2] if len(rest) > 2 else "", namespaced)


class _Found:
    def __init__(self) -> None:
        self.namespaced = False
        self.verbs: dict[str, tuple[GroupVersionKind, set[str]]] = {}

    def add(self, subresource: str, kind: GroupVersionKind, verb: str) -> None:
        self.verbs.setdefault(subresource, (kind, set()))[1].add(verb)
