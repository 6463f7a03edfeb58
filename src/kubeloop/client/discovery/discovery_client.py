"""Asks a server what it serves: aggregated discovery where it has it, the older one document per group version otherwise.

Source: KEP-3352; https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api; client-go discovery.
"""

from __future__ import annotations

import asyncio

from kubeloop.client.discovery import documents
from kubeloop.client.discovery.resources import ApiResource, Discovered, Failure
from kubeloop.meta.errors import ApiError, DeadlineError, NotFound, TransportError
from kubeloop.meta.kinds import GroupVersion
from kubeloop.transport import Response, Transport

_AGGREGATED = ",".join(
    (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    )
)
# client-go asks for many at once too; the server's priority and fairness keeps it in bounds.
_AT_ONCE = 20


async def discover(transport: Transport) -> Discovered:
    """Ask for everything: two requests with aggregated discovery, one per group version without.

    A missing /api is tolerated (a server of extensions only), a missing /apis is an error.

    Raises:
        ApiError, TransportError: as the server answered.
        DecodeError: an answer is no discovery document.
    """
    core, groups = await asyncio.gather(_core(transport), transport.request("GET", "/apis", accept=_AGGREGATED))
    found: list[ApiResource] = []
    failed: list[Failure] = []
    todo: list[GroupVersion] = []
    for answer, versions in ((core, documents.core_versions), (groups, documents.group_versions)):
        if answer is None:
            continue
        if documents.kind_of(answer) == "APIGroupDiscoveryList":
            documents.read_aggregated(answer, found, failed)
        else:
            todo += versions(answer)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(version: GroupVersion) -> tuple[ApiResource, ...] | Failure:
        async with gate:
            return await discover_version(transport, version)

    for learnt in await asyncio.gather(*(one(version) for version in todo)):
        if isinstance(learnt, Failure):
            # An extension server that is down must not hide all others.
            failed.append(learnt)
        else:
            found += learnt
    return Discovered(tuple(found), tuple(failed))


async def discover_version(transport: Transport, version: GroupVersion) -> tuple[ApiResource, ...] | Failure:
    """Ask for one group version, the older way.

    Raises:
        DecodeError: the answer is no discovery document.
    """
    try:
        return tuple(documents.read_version(await transport.request("GET", version.path), version))
    except ApiError as error:
        # What is worth asking again: client-go discovery/cached/memory (isTransientError).
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
