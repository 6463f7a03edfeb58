"""Discovery documents, made from the registry: legacy lists by group and version, and the aggregated one.

Source: Kubernetes documentation "Discovery API"; meta.k8s.io/v1 APIGroup and APIResourceList; apidiscovery.k8s.io/v2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeloop.apiserver.discovery.subresources import subresources_of
from kubeloop.apiserver.discovery.version_order import by_priority
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.resource import ServedResource
from kubeloop.meta.kinds import GroupVersion
from kubeloop.schema import SubresourceInfo, builtin

JSONObject = dict[str, Any]


def groups_in_order(registry: Registry) -> list[str]:
    """Built-in groups as Kubernetes orders them, then those of custom resources by name; without the core group."""
    served = [group for group in registry.groups() if group]
    known = {group.name: at for at, group in enumerate(builtin().groups())}
    return sorted(served, key=lambda group: (known.get(group, len(known)), group))


def versions_in_order(registry: Registry, group: str) -> list[str]:
    """The preferred version first."""
    versions = [version for version in registry.versions(group) if registry.resources(GroupVersion(group, version))]
    known = next((info.versions for info in builtin().groups() if info.name == group), ())
    rank = {version: at for at, version in enumerate(known)}
    return sorted(by_priority(versions), key=lambda version: rank.get(version, len(rank)))


def root_paths(registry: Registry, others: Iterable[str]) -> JSONObject:
    """``/``: every path that answers without a name, ``others`` (health, OpenAPI ...) among them."""
    paths = {"/api", "/api/v1", "/apis", "/apis/", *others}
    for group in groups_in_order(registry):
        paths |= {f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions_in_order(registry, group))}
    return {"paths": sorted(paths)}


def api_versions(server_address: str) -> JSONObject:
    """``/api``. ``server_address`` is ``host:port``."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def api_group_list(registry: Registry) -> JSONObject:
    """``/apis``"""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(registry, group) for group in groups_in_order(registry)]}


def api_group(registry: Registry, group: str) -> JSONObject:
    """``/apis/GROUP``"""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(registry, group)}


def _group(registry: Registry, group: str) -> JSONObject:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions_in_order(registry, group)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def api_resource_list(registry: Registry, group_version: GroupVersion) -> JSONObject:
    """``/api/v1`` and ``/apis/GROUP/VERSION``"""
    resources: list[JSONObject] = []
    for resource in registry.resources(group_version):
        resources.append(_resource(resource))
        resources += [_subresource(resource, sub) for sub in subresources_of(resource)]
    head: JSONObject = {"kind": "APIResourceList"}
    if group_version.group:
        head["apiVersion"] = "v1"  # the document of the core group has none, by age
    return {**head, "groupVersion": group_version.api_version, "resources": resources}


def _resource(resource: ServedResource) -> JSONObject:
    shown: JSONObject = {
        "name": resource.gvr.resource,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        shown["shortNames"] = list(resource.short_names)
    if resource.categories:
        shown["categories"] = list(resource.categories)
    stored = storage_version_hash(resource)
    if stored:
        shown["storageVersionHash"] = stored
    return shown


def storage_version_hash(resource: ServedResource) -> str:
    """Empty for resources that are not stored."""
    known = resource.extra.get("storage_version_hash")
    if known is not None:
        return str(known)
    return next((info.storage_version_hash for info in builtin().resources() if info.gvr == resource.gvr), "")


def _subresource(resource: ServedResource, sub: SubresourceInfo) -> JSONObject:
    shown: JSONObject = {"name": f"{resource.gvr.resource}/{sub.name}", "singularName": "", "namespaced": resource.namespaced}
    if sub.kind.group_version != resource.gvr.group_version:
        shown |= {"group": sub.kind.group, "version": sub.kind.version}
    return {**shown, "kind": sub.kind.kind, "verbs": list(sub.verbs)}


def aggregated(registry: Registry, *, core: bool) -> JSONObject:
    """``/api`` (``core``) or ``/apis`` as an APIGroupDiscoveryList: everything in one document."""
    groups = [""] if core else groups_in_order(registry)
    items = [_group_discovery(registry, group) for group in groups]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _group_discovery(registry: Registry, group: str) -> JSONObject:
    versions = [
        {
            "version": version,
            "resources": [_resource_discovery(one) for one in registry.resources(GroupVersion(group, version))],
            "freshness": "Current",
        }
        for version in versions_in_order(registry, group)
    ]
    return {"metadata": {"name": group} if group else {}, "versions": versions}


def _resource_discovery(resource: ServedResource) -> JSONObject:
    shown: JSONObject = {
        "resource": resource.gvr.resource,
        "responseKind": _response_kind(resource, SubresourceInfo(name="", kind=resource.gvk, verbs=())),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        shown["shortNames"] = list(resource.short_names)
    if resource.categories:
        shown["categories"] = list(resource.categories)
    subresources = [
        {"subresource": sub.name, "responseKind": _response_kind(resource, sub), "verbs": list(sub.verbs)}
        for sub in subresources_of(resource)
    ]
    if subresources:
        shown["subresources"] = subresources
    return shown


def _response_kind(resource: ServedResource, sub: SubresourceInfo) -> JSONObject:
    """Built-in resources leave out the group and version that they stand under; custom ones name them."""
    same = sub.kind.group_version == resource.gvr.group_version and not resource.custom
    return {"group": "" if same else sub.kind.group, "version": "" if same else sub.kind.version, "kind": sub.kind.kind}
