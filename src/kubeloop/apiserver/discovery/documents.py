"""Discovery documents, built from the registry: legacy lists by group and version, and the aggregated list as JSON and protobuf.

Source: Kubernetes documentation "Discovery API"; meta.k8s.io/v1 APIGroup and APIResourceList; apidiscovery.k8s.io/v2;
k8s.io/api/apidiscovery/v2/generated.proto (field numbers).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from kubeloop.apiserver.aggregation.api_services import OWN_GROUP, ApiServiceTable, RegisteredService, is_remote
from kubeloop.apiserver.builtin.bootstrap.objects import group_priority, version_priority
from kubeloop.apiserver.registry.registry import Registry, by_priority
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.codec.protobuf.envelope import wrapped
from kubeloop.codec.protobuf.wire import varint
from kubeloop.meta.kinds import GroupVersion, GroupVersionKind, GroupVersionResource
from kubeloop.schema import SubresourceInfo, builtin
from kubeloop.types import JSONObject

# Aggregated discovery as Kubernetes protobuf. The codec's table does not list these messages, because they are never stored objects.


_BYTES: Final = 2
#: Message -> its fields in order: number, name, type (``text``, which is always written, ``[text]``, a message, or ``[message]``).
_MESSAGES: Final[dict[str, tuple[tuple[int, str, str], ...]]] = {
    "APIGroupDiscoveryList": ((1, "metadata", "ListMeta"), (2, "items", "[APIGroupDiscovery]")),
    "APIGroupDiscovery": ((1, "metadata", "ObjectMeta"), (2, "versions", "[APIVersionDiscovery]")),
    "APIVersionDiscovery": ((1, "version", "text"), (2, "resources", "[APIResourceDiscovery]"), (3, "freshness", "text")),
    "APIResourceDiscovery": (
        (1, "resource", "text"),
        (2, "responseKind", "GroupVersionKind"),
        (3, "scope", "text"),
        (4, "singularResource", "text"),
        (5, "verbs", "[text]"),
        (6, "shortNames", "[text]"),
        (7, "categories", "[text]"),
        (8, "subresources", "[APISubresourceDiscovery]"),
    ),
    "APISubresourceDiscovery": (
        (1, "subresource", "text"),
        (2, "responseKind", "GroupVersionKind"),
        (3, "acceptedTypes", "[GroupVersionKind]"),
        (4, "verbs", "[text]"),
    ),
    "GroupVersionKind": ((1, "group", "text"), (2, "version", "text"), (3, "kind", "text")),
    "ListMeta": ((1, "selfLink", "text"), (2, "resourceVersion", "text"), (3, "continue", "text")),
    "ObjectMeta": tuple(
        (number, name, "text") for number, name in enumerate(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), 1)
    ),
}
#: The encoding of generation 0 and a null creationTimestamp, which Go writes for empty metadata.
_NO_TIME: Final = b"\x38\x00\x42\x00"


def encode_discovery(tree: JSONObject) -> bytes:
    """Encode an APIGroupDiscoveryList as protobuf in Kubernetes' envelope."""
    return wrapped(tree["apiVersion"], tree["kind"], _message("APIGroupDiscoveryList", tree))


def _message(name: str, tree: JSONObject) -> bytes:
    parts = []
    for number, field, form in _MESSAGES[name]:
        inner = form.strip("[]")
        values: list[Any] = tree.get(field) or [] if form.startswith("[") else [tree.get(field) or ("" if form == "text" else {})]
        for value in values:
            content: bytes = value.encode() if inner == "text" else _message(inner, value)
            parts += [varint(number << 3 | _BYTES), varint(len(content)), content]
    if name == "ObjectMeta":
        parts.append(_NO_TIME)
    return b"".join(parts)


# Groups and versions in the order of discovery: built-in ones, custom resources, and those of APIServices.
# Source: kube-aggregator pkg/apis/apiregistration/v1/helper (SortedByGroupAndVersion); k8s.io/apiserver pkg/endpoints/discovery/aggregated
# (calculateAPIGroupsLocked), which orders equal groups differently.


#: Priorities of groups and versions of custom resources.
_CUSTOM: Final = (1000, 100)
#: Priority of the group of APIServices, higher than any registered priority.
_FIRST: Final = 20001


class Order:
    """The order of groups and versions in discovery, computed from the current registry.

    ``groups`` and ``aggregated_groups`` leave out the core group.
    """

    def __init__(self, registry: Registry, table: ApiServiceTable | None = None) -> None:
        self._registry = registry
        self.table = table or ApiServiceTable()

    def groups(self) -> list[str]:
        """Return the groups as in ``/apis``: by priority, then by the name of their APIService, which begins with the version."""
        result = ((group, version) for group in self._groups() for version in self.versions(group))
        ordered = sorted(result, key=lambda group_version: (-self._priorities(*group_version)[0], f"{group_version[1]}.{group_version[0]}"))
        return list(dict.fromkeys(group for group, _ in ordered))

    def aggregated_groups(self) -> list[str]:
        """Return the groups as in the aggregated document: by the highest priority of their versions, then by name."""
        result = [group for group in self._groups() if self.aggregated_versions(group)]
        return sorted(result, key=lambda group: (-max(self._priorities(group, one)[0] for one in self.aggregated_versions(group)), group))

    def versions(self, group: str) -> list[str]:
        """Return the versions of a group, the preferred one first."""
        own = [one for one in self._registry.versions(group) if self._registry.resources(GroupVersion(group, one))]
        named = [one.version for one in self.table.services.values() if one.group == group and _is_shown(one)]
        known = next((info.versions for info in builtin().groups() if info.name == group), ())
        rank = {version: at for at, version in enumerate(known)}
        ordered = by_priority(dict.fromkeys([*own, *named]))
        return sorted(ordered, key=lambda version_name: (-self._priorities(group, version_name)[1], rank.get(version_name, len(rank))))

    def aggregated_versions(self, group: str) -> list[str]:
        """Return the versions of a group without versions that have an APIService but no resources."""
        return [one for one in self.versions(group) if self.remote(group, one) or self._registry.resources(GroupVersion(group, one))]

    def remote(self, group: str, version: str) -> RegisteredService | None:
        """Return the APIService of a version that an extension server serves, or None."""
        result = self.table.get(group, version)
        return result if result is not None and is_remote(result) else None

    def _groups(self) -> set[str]:
        return {
            group for group in (*self._registry.groups(), *(one.group for one in self.table.services.values() if _is_shown(one))) if group
        }

    def _priorities(self, group: str, version: str) -> tuple[int, int]:
        """Return the priority of the group in this version, and the priority of the version."""
        if group == OWN_GROUP:
            return _FIRST, 0
        result = self.table.get(group, version)
        if result is not None:
            return result.group_priority, result.version_priority
        known = group_priority(group)
        return _CUSTOM if known is None else (known, version_priority(group, version))


def _is_shown(service: RegisteredService) -> bool:
    """Return whether an APIService adds its group version to discovery. APIServices managed by the server do not; their resources do."""
    return service.group != OWN_GROUP and (service.service is not None or not service.managed)


_VERBS: Final = ("get", "patch", "update")
_SCALE: Final = GroupVersionKind("autoscaling", "v1", "Scale")


@cache
def _builtin() -> dict[GroupVersionResource, tuple[SubresourceInfo, ...]]:
    return {info.gvr: info.subresources for info in builtin().resources()}


def subresources_of(resource: ServedResource) -> tuple[SubresourceInfo, ...]:
    """Return the served subresources of a resource in the order of discovery."""
    if resource.custom:
        return tuple(
            SubresourceInfo(name=name, kind=_SCALE if name == "scale" else resource.gvk, verbs=_VERBS) for name in resource.subresources
        )
    return tuple(one for one in _builtin().get(resource.gvr, ()) if one.name in resource.subresources)


def root_paths(order: Order, handler_paths: Iterable[str]) -> JSONObject:
    """Return the document of ``/``, a list of all paths. ``handler_paths`` are the paths of other handlers (health, OpenAPI ...)."""
    paths = {"/api", "/api/v1", "/apis", "/apis/", *handler_paths}
    for group in order.groups():
        paths |= {f"/apis/{group}", *(f"/apis/{group}/{version}" for version in order.versions(group))}
    return {"paths": sorted(paths)}


def api_versions(server_address: str) -> JSONObject:
    """Return the document of ``/api``. ``server_address`` is ``host:port``."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def api_group_list(order: Order) -> JSONObject:
    """Return the document of ``/apis``."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(order, group) for group in order.groups()]}


def api_group(order: Order, group: str) -> JSONObject:
    """Return the document of ``/apis/GROUP``."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(order, group)}


def _group(order: Order, group: str) -> JSONObject:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in order.versions(group)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def api_resource_list(registry: Registry, group_version: GroupVersion) -> JSONObject:
    """Return the document of ``/api/v1`` or ``/apis/GROUP/VERSION``."""
    resources: list[JSONObject] = []
    for resource in registry.resources(group_version):
        resources.append(_resource(resource))
        resources += [_subresource(resource, sub) for sub in subresources_of(resource)]
    head: JSONObject = {"kind": "APIResourceList"}
    if group_version.group:
        head["apiVersion"] = "v1"  # the older document of the core group has no apiVersion
    return {**head, "groupVersion": group_version.api_version, "resources": resources}


def _resource(resource: ServedResource) -> JSONObject:
    document: JSONObject = {
        "name": resource.gvr.resource,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        document["shortNames"] = list(resource.short_names)
    if resource.categories:
        document["categories"] = list(resource.categories)
    stored = storage_version_hash(resource)
    if stored:
        document["storageVersionHash"] = stored
    return document


def storage_version_hash(resource: ServedResource) -> str:
    """Return the storage version hash of a resource, or "" if it is not stored."""
    known = resource.extra.get("storage_version_hash")
    if known is not None:
        return str(known)
    return next((info.storage_version_hash for info in builtin().resources() if info.gvr == resource.gvr), "")


def _subresource(resource: ServedResource, sub: SubresourceInfo) -> JSONObject:
    document: JSONObject = {"name": f"{resource.gvr.resource}/{sub.name}", "singularName": "", "namespaced": resource.namespaced}
    if sub.kind.group_version != resource.gvr.group_version:
        document |= {"group": sub.kind.group, "version": sub.kind.version}
    return {**document, "kind": sub.kind.kind, "verbs": list(sub.verbs)}


def aggregated(registry: Registry, order: Order, *, core: bool) -> JSONObject:
    """Return the APIGroupDiscoveryList of ``/api`` (``core``) or ``/apis``, which has all resources in one document."""
    groups = [""] if core else order.aggregated_groups()
    items = [_group_discovery(registry, order, group) for group in groups]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _group_discovery(registry: Registry, order: Order, group: str) -> JSONObject:
    versions = [_version_discovery(registry, order, GroupVersion(group, version)) for version in order.aggregated_versions(group)]
    return {"metadata": {"name": group} if group else {}, "versions": versions}


def _version_discovery(registry: Registry, order: Order, group_version: GroupVersion) -> JSONObject:
    remote = order.remote(group_version.group, group_version.version)
    if remote is not None:
        return order.table.discovered.get(remote.name) or {"version": group_version.version, "freshness": "Stale"}
    resources = [_resource_discovery(one) for one in registry.resources(group_version)]
    return {"version": group_version.version, "resources": resources, "freshness": "Current"}


def _resource_discovery(resource: ServedResource) -> JSONObject:
    document: JSONObject = {
        "resource": resource.gvr.resource,
        "responseKind": _response_kind(resource, SubresourceInfo(name="", kind=resource.gvk, verbs=())),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        document["shortNames"] = list(resource.short_names)
    if resource.categories:
        document["categories"] = list(resource.categories)
    subresources = [
        {"subresource": sub.name, "responseKind": _response_kind(resource, sub), "verbs": list(sub.verbs)}
        for sub in subresources_of(resource)
    ]
    if subresources:
        document["subresources"] = subresources
    return document


def _response_kind(resource: ServedResource, sub: SubresourceInfo) -> JSONObject:
    """Return ``responseKind``. Built-in resources omit their group and version, custom resources do not."""
    same = sub.kind.group_version == resource.gvr.group_version and not resource.custom
    return {"group": "" if same else sub.kind.group, "version": "" if same else sub.kind.version, "kind": sub.kind.kind}
