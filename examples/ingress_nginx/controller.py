"""The sync controller: changes of the cluster become changes of NGINX, by one worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from examples.ingress_nginx.annotations.settings import LOCATION_FIELDS, missing_text, read_settings
from examples.ingress_nginx.change_log import ChangeLog
from examples.ingress_nginx.cluster import BY_SERVICE, CachedObjects
from examples.ingress_nginx.ingress.builder import IngressBuilder, ObjectRef
from examples.ingress_nginx.ingress.endpoints import SERVICE_LABEL
from examples.ingress_nginx.model.configuration import Changes, Configuration
from examples.ingress_nginx.nginx.server import ApplyResult, ConfigurationRefused, NginxError, NginxServer
from examples.ingress_nginx.options import ControllerOptions
from kubeloop import Result
from kubeloop.api.core.v1 import ConfigMap, Pod, Secret, Service
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.api.networking.v1 import Ingress, IngressClass
from kubeloop.cache import ByLabel, Head
from kubeloop.controller import KeyController, Predicate, WatchedKind, annotations_changed, path_changed, resource_version_changed
from kubeloop.meta import ObjectKey, ObjectMeta
from kubeloop.timing import TokenBucket

#: The one key of the queue: many changes lead to one sync.
SYNC = ObjectKey("", "", "sync")
#: Reloads at once; after them ``ControllerOptions.reload_rate`` counts.
RELOAD_BURST = 2
#: Ingresses have no keys: all changes lead to the key of the sync.
_never = Predicate(lambda _: False)


@dataclass(frozen=True, slots=True)
class SyncReport:
    """One sync.

    ``seconds``, ``cpu``: time and CPU time of the controller from its start until NGINX serves the change. ``error``: why NGINX did not
    take it; empty: it did.
    """

    changes: Changes
    applied: ApplyResult
    seconds: float
    cpu: float = 0.0
    error: str = ""


class SyncController(
    KeyController[Ingress],
    predicates=[_never],
    watches=[
        WatchedKind(Ingress, to="ingress_changed", predicates=(path_changed("spec") | annotations_changed,)),
        WatchedKind(IngressClass, to="class_changed", predicates=(resource_version_changed,)),
        # Metadata of slices, such as the annotation of the last change, leads to no sync.
        WatchedKind(EndpointSlice, to="slice_changed", predicates=(path_changed("endpoints") | path_changed("ports"),)),
        WatchedKind(Service, to="service_changed", predicates=(path_changed("spec"),)),
        WatchedKind(Secret, to="secret_changed", predicates=(path_changed("data"),)),
        WatchedKind(ConfigMap, to="config_map_changed", predicates=(path_changed("data"),)),
    ],
    indexes={EndpointSlice: {BY_SERVICE: ByLabel(SERVICE_LABEL)}},
    write_verbs={Ingress: []},
    workers=1,
    needs_leader=False,
    name="kubeloop-ingress",
):
    """Keeps NGINX equal to the Ingresses of the cluster.

    Guarantees:
        A change is served after the next successful sync; a sync covers all changes before its start.
        If NGINX refuses a configuration, the last good one keeps serving, the pod gets a Warning event, and the sync is tried again.

    Args:
        nginx: Starts with the first sync, and stops with the controller.
        options: Options of the replica.
        observe: Called after each sync; an attribute, so that metrics can be added later.
    """

    def __init__(
        self, nginx: NginxServer, options: ControllerOptions | None = None, observe: Callable[[SyncReport], None] | None = None
    ) -> None:
        self.options = options or ControllerOptions()
        self.nginx = nginx
        self.objects = CachedObjects(self.lister)
        self.builder = IngressBuilder(self.objects, self.options.builder, self.options.settings)
        self.log_of_changes = ChangeLog()
        self.observe = observe
        self._pending = Changes()
        self._reloads: TokenBucket | None = None
        self._reload_due = 0.0
        #: Why the present ConfigMap must not be served; empty: it may be.
        self._denied = ""
        #: Objects that the options name and the cluster lacks.
        self._missing: list[str] = []
        #: NGINX has changes that wait for a reload.
        self._deferred = False
        self._started = False
        self._reported: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {}

    @property
    def configuration(self) -> Configuration:
        """The configuration as the cluster wants it; NGINX has it when the sync succeeded."""
        return self.builder.configuration

    async def start(self) -> None:
        # Without an Ingress no event leads to the first sync, which starts NGINX.
        self.enqueue(SYNC)

    async def stop(self) -> None:
        if self._started:
            await self.nginx.stop()

    # Changes of objects. Each method returns the key of the sync, or nothing if the change concerns no served Ingress.

    def ingress_changed(self, head: Head) -> list[ObjectKey]:
        return self._changed("Ingress", head)

    def class_changed(self, head: Head) -> list[ObjectKey]:
        return self._changed("IngressClass", head)

    def slice_changed(self, head: Head) -> list[ObjectKey]:
        service = head.labels.get(SERVICE_LABEL, "")
        self.log_of_changes.add("EndpointSlice", head.namespace, service)
        return [SYNC] if service else []

    def service_changed(self, head: Head) -> list[ObjectKey]:
        return self._changed("Service", head)

    def secret_changed(self, head: Head) -> list[ObjectKey]:
        return self._changed("Secret", head)

    def config_map_changed(self, head: Head) -> list[ObjectKey]:
        return self._changed("ConfigMap", head)

    def _changed(self, kind: str, head: Head) -> list[ObjectKey]:
        ref = (kind, head.namespace, head.name)
        if not self.depends_on(ref):
            return []
        self.log_of_changes.add(kind, head.namespace, head.name)
        return [SYNC]

    def depends_on(self, ref: ObjectRef) -> bool:
        """Report whether a change of an object may change the configuration."""
        return self.builder.reads(ref) or ref == ("ConfigMap", *(self.options.config_map or ("", "")))

    async def reconcile(self, key: ObjectKey) -> Result | None:
        del key  # there is one
        began, cpu = time.monotonic(), time.process_time()
        try:
            self._pending.merge(self.build())
        except BaseException:
            # The changes are taken, and partly built: the next sync builds everything.
            self.log_of_changes.add_everything()
            raise
        if not self._pending and not self._deferred and self._started and not self._denied:
            return await self.finish()
        wait = self._reload_due - self.client.clock.now()
        try:
            if self._denied:
                raise ConfigurationRefused(self._denied)
            applied = await self._apply(may_reload=wait <= 0)
        except NginxError as error:
            self._report(SyncReport(self._pending, ApplyResult(reloaded=False), time.monotonic() - began, error=str(error)))
            raise
        done, self._pending = self._pending, Changes()
        self._deferred = bool(applied.deferred)
        if self._deferred:
            return Result(requeue_after=wait)
        if applied.reloaded:
            self._reload_due = self.client.clock.now() + self._reserve_reload()
        self._report(SyncReport(done, applied, time.monotonic() - began, time.process_time() - cpu))
        return await self.finish()

    def _reserve_reload(self) -> float:
        """Return the seconds until the next reload. A reload costs a new set of worker processes: a burst of changes shares one."""
        if self._reloads is None:
            self._reloads = TokenBucket(self.options.reload_rate, RELOAD_BURST - 1, self.client.clock)
        return self._reloads.reserve()

    async def finish(self) -> Result | None:
        """Do what follows when NGINX serves the configuration: nothing for Ingresses alone."""
        return None

    def build(self) -> Changes:
        """Build the parts of the configuration that depend on the changes since the last call."""
        changed = self.log_of_changes.take()
        changes = Changes()
        before = self.builder.configuration.settings
        if changed is None or (self.options.config_map is not None and ("ConfigMap", *self.options.config_map) in changed):
            changes.settings = self._read_settings()
        now = self.builder.configuration.settings
        if changed is None or any(getattr(before, name) != getattr(now, name) for name in LOCATION_FIELDS):
            changes.merge(self.builder.rebuild())
        else:
            changes.merge(self.builder.update(changed))
        self._report_problems()
        for kind, namespace, name in changed or ():
            if kind == "Ingress" and (namespace, name) in self.builder.records:
                self._event("Normal", (namespace, name), "Sync", "Scheduled for sync")
        return changes

    def _read_settings(self) -> bool:
        """Read the settings of the ConfigMap, and return whether they changed. The addresses are those of the command line."""
        key = self.options.config_map
        found = read_settings(self.objects.config_map(*key) if key is not None else None, self.options.settings)
        prefix = f"ConfigMap {'/'.join(key or ())}"
        for text in found.problems:
            self.log.warning("%s: %s", prefix, text)
        self._denied = "; ".join(f"{prefix}: {text}" for text in found.denials)
        before = self.builder.configuration.settings
        self.builder.configuration.settings = found.settings
        return self.builder.configuration.settings != before

    async def _apply(self, *, may_reload: bool) -> ApplyResult:
        if self._started:
            return await self.nginx.apply(self.configuration, self._pending, may_reload=may_reload)
        await self.nginx.start(self.configuration)
        self._started = True
        return ApplyResult(reloaded=False, reason="start")

    def _report(self, report: SyncReport) -> None:
        if report.error:
            served = "the last good one keeps serving" if self._started else "NGINX does not run yet"
            self.log.warning("the configuration is refused; %s: %s", served, report.error)
            self._pod_event("Warning", "RELOAD", f"Error reloading NGINX: {report.error}")
        elif report.applied.reason == "start":
            found = self.configuration
            self.log.info("NGINX serves %d hosts; the first sync took %.3f s of CPU", len(found.servers), report.cpu)
        elif report.applied.reloaded:
            self.log.info("NGINX was reloaded in %.3f s: %s", report.seconds, report.applied.reason or "the configuration changed")
            self._pod_event("Normal", "RELOAD", "NGINX reload triggered due to a change in configuration")
        if self.observe is not None:
            self.observe(report)

    def _report_problems(self) -> None:
        """Record a Warning event for each new problem of an Ingress, and log new problems of the options."""
        missing = self.builder.missing_objects()
        if self.options.config_map is not None and self.objects.config_map(*self.options.config_map) is None:
            missing.append(missing_text(self.options.config_map))
        for text in missing:
            if text not in self._missing:
                self.log.warning("%s", text)
                self._pod_event("Warning", "MissingObject", text)
        self._missing = missing
        problems = self.builder.problems
        for key, found in problems.items():
            old = self._reported.get(key, ())
            if found != old:
                for reason, text in found:
                    if (reason, text) not in old:
                        self.log.warning("Ingress %s/%s: %s", *key, text)
                        self._event("Warning", key, reason, text)
        self._reported = {key: found for key, found in problems.items() if found}

    def _event(self, kind: str, key: tuple[str, str], reason: str, text: str) -> None:
        ingress = self.objects.ingress(*key)
        if ingress is not None:
            (self.events.warning if kind == "Warning" else self.events.normal)(ingress, reason, text)

    def _pod_event(self, kind: str, reason: str, text: str) -> None:
        namespace, name = self.options.pod
        if name:
            pod = Pod(metadata=ObjectMeta(name=name, namespace=namespace))
            (self.events.warning if kind == "Warning" else self.events.normal)(pod, reason, text)
