"""Requests the resources of a server: by aggregated discovery if the server supports it, or else by one document per group version."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec

from kubeloop.client.discovery.resources import ApiResource, Discovered, Failure
from kubeloop.meta.errors import ApiError, DeadlineError, DecodeError, NotFound, TransportError
from kubeloop.meta.kinds import GroupVersion, GroupVersionKind, GroupVersionResource
from kubeloop.transport import Response, Transport

# The fields of discovery documents, aggregated (APIGroupDiscoveryList) and older (APIGroupList, APIResourceList).
#
# Source: KEP-3352; k8s.io/api/apidiscovery/v2, apimachinery pkg/apis/meta/v1; client-go discovery/aggregated_discovery.go.


class _Kind(msgspec.Struct):
    kind: str = ""


class _GroupVersionKind(msgspec.Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Subresource(msgspec.Struct):
    subresource: str


class _Resource(msgspec.Struct, rename="camel"):
    resource: str
    response_kind: _GroupVersionKind | None = None
    scope: str = "Namespaced"
    singular_resource: str = ""
    verbs: tuple[str, ...] | None = None
    short_names: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    subresources: list[_Subresource] | None = None


class _Version(msgspec.Struct):
    version: str
    resources: list[_Resource] | None = None
    freshness: str = "Current"


class _Name(msgspec.Struct, frozen=True):
    name: str = ""


class _Group(msgspec.Struct):
    metadata: _Name = _Name()
    versions: list[_Version] | None = None


class _Aggregated(msgspec.Struct):
    items: list[_Group]


class _LegacyResource(msgspec.Struct, rename="camel"):
    name: str
    kind: str
    namespaced: bool = False
    singular_name: str = ""
    verbs: tuple[str, ...] | None = None
    short_names: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None


class _LegacyResources(msgspec.Struct):
    resources: list[_LegacyResource] | None = None


class _LegacyVersion(msgspec.Struct, rename="camel"):
    group_version: str


class _LegacyGroup(msgspec.Struct, rename="camel"):
    name: str
    versions: list[_LegacyVersion]
    preferred_version: _LegacyVersion | None = None


class _LegacyGroups(msgspec.Struct):
    groups: list[_LegacyGroup]


class _CoreVersions(msgspec.Struct):
    versions: list[str]


T = TypeVar("T")


def _read(response: Response, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(response.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"the answer is not a discovery document: {error}; is the server's address that of a Kubernetes API?") from error


def kind_of(response: Response) -> str:
    return _read(response, _Kind).kind


def read_aggregated(response: Response, resources: list[ApiResource], failed: list[Failure]) -> None:
    for group in _read(response, _Aggregated).items:
        for version in group.versions or ():
            at = GroupVersion(group.metadata.name, version.version)
            if version.freshness == "Stale":
                # The entry is the last response of a server that does not respond now; client-go counts it as failed, too.
                failed.append(Failure(at, "stale: the server behind it does not answer", again=True))
                continue
            for one in version.resources or ():
                # A resource that has only subresources has no kind.
                if one.response_kind is None or not one.response_kind.kind:
                    continue
                kind = one.response_kind
                # The server leaves group and version empty where they are those of the resource (recorded so from 1.36).
                gvk = GroupVersionKind(kind.group or at.group, kind.version or at.version, kind.kind)
                resources.append(
                    ApiResource(
                        gvr=GroupVersionResource(*at, one.resource),
                        gvk=gvk,
                        namespaced=one.scope == "Namespaced",
                        singular=one.singular_resource,
                        short_names=one.short_names or (),
                        categories=one.categories or (),
                        verbs=one.verbs or (),
                        subresources=tuple(sub.subresource for sub in one.subresources or ()),
                    )
                )


def core_versions(response: Response) -> list[GroupVersion]:
    return [GroupVersion("", version) for version in _read(response, _CoreVersions).versions]


def group_versions(response: Response) -> list[GroupVersion]:
    result = []
    for group in _read(response, _LegacyGroups).groups:
        versions = [one.group_version for one in group.versions]
        preferred = group.preferred_version.group_version if group.preferred_version else ""
        versions.sort(key=lambda version, first=preferred: version != first)  # type: ignore[misc]  # mypy cannot infer a default's type
        result += [GroupVersion.parse(version) for version in versions]
    return result


def read_version(response: Response, version: GroupVersion) -> list[ApiResource]:
    entries = _read(response, _LegacyResources).resources or []
    subresources: dict[str, list[str]] = {}
    for entry in entries:
        name, slash, subresource = entry.name.partition("/")
        if slash:
            subresources.setdefault(name, []).append(subresource)
    return [
        ApiResource(
            gvr=GroupVersionResource(*version, entry.name),
            gvk=GroupVersionKind(*version, entry.kind),
            namespaced=entry.namespaced,
            singular=entry.singular_name,
            short_names=entry.short_names or (),
            categories=entry.categories or (),
            verbs=entry.verbs or (),
            subresources=tuple(subresources.get(entry.name, ())),
        )
        for entry in entries
        if "/" not in entry.name
    ]


_AGGREGATED = ",".join(
    (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    )
)
# Number of concurrent requests. client-go also sends many at once; the server's API priority and fairness limits them.
_AT_ONCE = 20


async def discover(transport: Transport) -> Discovered:
    """Request all resources: by two requests with aggregated discovery, or else by one request per group version.

    A server without /api is accepted (it serves only extensions); a server without /apis is an error.

    Raises:
        ApiError, TransportError: The server refused, or no response arrived.
        DecodeError: A response is not a discovery document.
    """
    core, groups = await asyncio.gather(_core(transport), transport.request("GET", "/apis", accept=_AGGREGATED))
    result: list[ApiResource] = []
    failed: list[Failure] = []
    todo: list[GroupVersion] = []
    for response, versions in ((core, core_versions), (groups, group_versions)):
        if response is None:
            continue
        if kind_of(response) == "APIGroupDiscoveryList":
            read_aggregated(response, result, failed)
        else:
            todo += versions(response)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(version: GroupVersion) -> tuple[ApiResource, ...] | Failure:
        async with gate:
            return await discover_version(transport, version)

    for learnt in await asyncio.gather(*(one(version) for version in todo)):
        if isinstance(learnt, Failure):
            # An extension server that is down must not hide all others.
            failed.append(learnt)
        else:
            result += learnt
    return Discovered(tuple(result), tuple(failed))


async def discover_version(transport: Transport, version: GroupVersion) -> tuple[ApiResource, ...] | Failure:
    """Request the resources of one group version with unaggregated discovery.

    Raises:
        DecodeError: The response is not a discovery document.
    """
    try:
        return tuple(read_version(await transport.request("GET", version.path), version))
    except ApiError as error:
        # Temporary errors, as in client-go discovery/cached/memory (isTransientError).
        code = error.status.code
        why = f"{error.status.reason}: {error.status.message}"
        return Failure(version, why, again=code >= 500 or code == 429, absent=isinstance(error, NotFound))
    except (TransportError, DeadlineError) as error:
        return Failure(version, str(error), again=True)


async def _core(transport: Transport) -> Response | None:
    try:
        return await transport.request("GET", "/api", accept=_AGGREGATED)
    except NotFound:
        return None
