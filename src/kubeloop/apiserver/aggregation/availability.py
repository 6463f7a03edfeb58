"""Availability of extension servers: checks of the service, its endpoints and its discovery document.

Source: kube-aggregator pkg/controllers/status/remote (sync).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from kubeloop.apiserver.aggregation.api_services import PASSED, Availability, RegisteredService
from kubeloop.apiserver.aggregation.backend import PROBER, Backends, ExtensionServerUnreachable
from kubeloop.apiserver.outbound.failure import CallFailed
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.storage import prefix_end
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.tasks import SupervisedTask, Supervisor
from kubeloop.timing import Backoff, Clock
from kubeloop.types import JSONObject

SERVICES: Final = GroupVersionResource("", "v1", "services")
SLICES: Final = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")
OWNER: Final = "kubernetes.io/service-name"
#: Endpoints to try before a service counts as unavailable.
_ATTEMPTS: Final = 5


class AvailabilityChecker:
    """Checks the stored Service and EndpointSlices of an APIService, and requests the discovery document of its server."""

    def __init__(self, registry: Registry, objects: Objects, backends: Backends) -> None:
        self._registry = registry
        self._objects = objects
        self._backends = backends

    async def check(self, service: RegisteredService) -> Availability:
        """Return the availability of a service. Raises only StorageFailed and cancellation."""
        assert service.service is not None
        wanted = service.service
        where = f'service/{wanted.name} in "{wanted.namespace}"'
        found = await self._objects.get(self._resource(SERVICES), wanted.namespace, wanted.name)
        if found is None:
            return Availability("False", "ServiceNotFound", f"{where} is not present")
        spec = found.obj.get("spec") or {}
        if spec.get("type", "ClusterIP") == "ClusterIP":
            port = next((one for one in spec.get("ports") or () if one.get("port") == wanted.port), None)
            if port is None:
                return Availability("False", "ServicePortError", f"{where} is not listening on port {wanted.port}")
            slices = await self._slices(wanted.namespace, wanted.name)
            if not slices:
                return Availability("False", "EndpointsNotFound", f"cannot find endpointslices for {where}")
            name = port.get("name") or ""
            if not any(_has_endpoint(one, name) for one in slices):
                text = f"endpointslices for {where} have no addresses with port name {json.dumps(name)}"
                return Availability("False", "MissingEndpoints", text)
        fault = await self._ask(service)
        return PASSED if not fault else Availability("False", "FailedDiscoveryCheck", fault, again=True)

    async def _ask(self, service: RegisteredService) -> str:
        """Return "" if an endpoint serves the discovery document, else the error of the last endpoint."""
        asked: set[str] = set()
        fault = ""
        for _ in range(_ATTEMPTS):
            try:
                place = replace(await self._backends.place(service), path=service.document)
            except CallFailed as failed:
                return str(failed)
            if place.url in asked:
                continue
            asked.add(place.url)
            try:
                status, _headers, _body = await self._backends.get_from(place, PROBER, [("Accept-Encoding", "identity")])
            except ExtensionServerUnreachable as failed:
                fault = f"failing or missing response from {place.url}: Get {json.dumps(place.url)}: {failed}"
                continue
            if 200 <= status < 300:
                return ""
            fault = f"failing or missing response from {place.url}: bad status from {place.url}: {status}"
        return fault

    async def _slices(self, namespace: str, name: str) -> list[JSONObject]:
        resource = self._resource(SLICES)
        prefix = self._objects.prefix(resource, namespace)
        found = await self._objects.storage.range(prefix, prefix_end(prefix))
        trees = (self._objects.tree(resource, kv) for kv in found.items)
        return [one for one in trees if (one["metadata"].get("labels") or {}).get(OWNER) == name]

    def _resource(self, gvr: GroupVersionResource) -> ServedResource:
        found = self._registry.get(gvr)
        if found is None:
            raise LookupError(f"the registry does not serve {gvr}")
        return found


def _has_endpoint(found: JSONObject, port: str) -> bool:
    ready = any((one.get("conditions") or {}).get("ready", True) for one in found.get("endpoints") or ())
    return ready and any((one.get("name") or "") == port and one.get("port") for one in found.get("ports") or ())


# Periodic probes of one extension server.
# Source: kube-aggregator pkg/controllers/status/remote (when it probes), pkg/apiserver/handler_discovery.go.


#: Seconds between probes while nothing changes. Upstream uses 30, and does not probe earlier when a request fails.
INTERVAL: Final = 5.0
#: Seconds between reads of discovery and OpenAPI documents.
REFRESH: Final = 60.0

#: Callback with the availability of a service.
StatusWriter = Callable[[RegisteredService, Availability], Awaitable[None]]
#: Reads the documents of a service. Returns False if they could not be read.
DocumentReader = Callable[[RegisteredService, Availability], Awaitable[bool]]


class Probe:
    """Probes one extension server at intervals, from ``start`` to ``stop``, in a background task."""

    def __init__(
        self, service: RegisteredService, checks: AvailabilityChecker, write_status: StatusWriter, read: DocumentReader, clock: Clock
    ) -> None:
        self.service = service
        self._checks = checks
        self._write_status = write_status
        self._read = read
        self._clock = clock
        self._due = asyncio.Event()
        self._read_at = float("-inf")
        self._task: SupervisedTask | None = None

    def start(self, tasks: Supervisor) -> None:
        """Start the background task."""
        self._task = tasks.start(self._run, name="apiservice-availability")

    def check_now(self) -> None:
        """Probe at once."""
        self._due.set()

    def refresh(self) -> None:
        """Probe at once, and read the documents even if they were read recently."""
        self._read_at = float("-inf")
        self._due.set()

    async def stop(self) -> None:
        """Stop the background task."""
        if self._task is not None:
            await self._task.stop()

    async def _run(self) -> None:
        retries = Backoff(initial=0.1, cap=INTERVAL, jitter=0.1, reset_after=None, clock=self._clock)
        passed = False
        while True:
            self._due.clear()
            pause = INTERVAL
            try:
                availability = await self._checks.check(self.service)
                await self._write_status(self.service, availability)
                if availability.passed != passed or self._clock.now() - self._read_at >= REFRESH:
                    self._read_at = self._clock.now()  # set before the read, so that a refresh that is requested meanwhile is not lost
                    if not await self._read(self.service, availability):
                        self._read_at = float("-inf")
                passed = availability.passed
                if availability.again:
                    pause = retries.next()
                else:
                    retries = Backoff(initial=0.1, cap=INTERVAL, jitter=0.1, reset_after=None, clock=self._clock)
                if self._task is not None:
                    self._task.recovered(self.service.name)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next check may succeed
                if self._task is not None:
                    self._task.failed(error, self.service.name)
            await self._wait(pause)

    async def _wait(self, seconds: float) -> None:
        timer = self._clock.call_later(seconds, self._due.set)
        try:
            await self._due.wait()
        finally:
            timer.cancel()
