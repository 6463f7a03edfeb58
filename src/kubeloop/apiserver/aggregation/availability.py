"""Whether the server behind an APIService can be used: its service, endpoints, and its discovery document, asked for.

Source: kube-aggregator pkg/controllers/status/remote (sync).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from kubeloop.apiserver.aggregation.api_services import PASSED, Finding, Registered
from kubeloop.apiserver.aggregation.backend import PROBER, Backends, NoBackend
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
#: Endpoints that are tried before a service is called unavailable.
_ATTEMPTS: Final = 5


class Checks:
    """Looks at the services of APIServices, as they are stored, and asks what is behind them."""

    def __init__(self, registry: Registry, objects: Objects, backends: Backends) -> None:
        self._registry = registry
        self._objects = objects
        self._backends = backends

    async def check(self, service: Registered) -> Finding:
        """Never raises but for cancellation and faults of the storage."""
        assert service.service is not None
        wanted = service.service
        where = f'service/{wanted.name} in "{wanted.namespace}"'
        found = await self._objects.get(self._resource(SERVICES), wanted.namespace, wanted.name)
        if found is None:
            return Finding("False", "ServiceNotFound", f"{where} is not present")
        spec = found.obj.get("spec") or {}
        if spec.get("type", "ClusterIP") == "ClusterIP":
            port = next((one for one in spec.get("ports") or () if one.get("port") == wanted.port), None)
            if port is None:
                return Finding("False", "ServicePortError", f"{where} is not listening on port {wanted.port}")
            slices = await self._slices(wanted.namespace, wanted.name)
            if not slices:
                return Finding("False", "EndpointsNotFound", f"cannot find endpointslices for {where}")
            name = port.get("name") or ""
            if not any(_has_endpoint(one, name) for one in slices):
                text = f"endpointslices for {where} have no addresses with port name {json.dumps(name)}"
                return Finding("False", "MissingEndpoints", text)
        fault = await self._ask(service)
        return PASSED if not fault else Finding("False", "FailedDiscoveryCheck", fault, again=True)

    async def _ask(self, service: Registered) -> str:
        """Empty if one of the service's endpoints serves its discovery document, else why the last one does not."""
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
            except NoBackend as failed:
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


# Watches over one APIService of another server: looks whether it is available, and at what it serves, again and again.
#
# Source: kube-aggregator pkg/controllers/status/remote (when it looks), pkg/apiserver/handler_discovery.go.


#: Seconds between looks while nothing changes. Upstream waits for 30, and does not look sooner when a request fails.
INTERVAL: Final = 5.0
#: Seconds between readings of what is served.
REFRESH: Final = 60.0

#: Told what was found of a service.
Tell = Callable[[Registered, Finding], Awaitable[None]]
#: Reads what a service serves; False: it could not be read.
Read = Callable[[Registered, Finding], Awaitable[bool]]


class Probe:
    """A task that checks one APIService at intervals, from ``start`` to ``stop``. ``look`` makes it check at once."""

    def __init__(self, service: Registered, checks: Checks, tell: Tell, read: Read, clock: Clock) -> None:
        self.service = service
        self._checks = checks
        self._tell = tell
        self._read = read
        self._clock = clock
        self._due = asyncio.Event()
        self._read_at = float("-inf")
        self._task: SupervisedTask | None = None

    def start(self, tasks: Supervisor) -> None:
        self._task = tasks.start(self._run, name="apiservice-availability")

    def look(self) -> None:
        self._due.set()

    def read_anew(self) -> None:
        """Look at once, and read what is served however lately it was read."""
        self._read_at = float("-inf")
        self._due.set()

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()

    async def _run(self) -> None:
        retries = Backoff(initial=0.1, cap=INTERVAL, jitter=0.1, reset_after=None, clock=self._clock)
        passed = False
        while True:
            self._due.clear()
            pause = INTERVAL
            try:
                finding = await self._checks.check(self.service)
                await self._tell(self.service, finding)
                if finding.passed != passed or self._clock.now() - self._read_at >= REFRESH:
                    self._read_at = self._clock.now()  # before it is read: who wants it read anew meanwhile is heard
                    if not await self._read(self.service, finding):
                        self._read_at = float("-inf")
                passed = finding.passed
                if finding.again:
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
