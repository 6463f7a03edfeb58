"""FlowSchemas: selection by request, and their status. Source: k8s.io/apiserver pkg/util/flowcontrol/rule.go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from kubeloop.apiserver.builtin.bootstrap.objects import FLOW_CONTROL_GROUP, dangling
from kubeloop.apiserver.ownership import Owners
from kubeloop.apiserver.registry.object_meta import timestamp
from kubeloop.apiserver.registry.objects import Objects, PreconditionFailed
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.storage import StorageEvent, prefix_end
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.endpoints.access import User
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.tasks import SupervisedTask, Supervisor
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

# Status of FlowSchemas: the condition Dangling is true if the priority level of a schema does not exist.
# Source: k8s.io/apiserver pkg/util/flowcontrol/apf_controller.go.


SCHEMAS = GroupVersionResource(FLOW_CONTROL_GROUP, "v1", "flowschemas")
LEVELS = GroupVersionResource(FLOW_CONTROL_GROUP, "v1", "prioritylevelconfigurations")
MANAGER = "api-priority-and-fairness-config-consumer-v1"


class SchemaStatus:
    """Writes the status of FlowSchemas, from ``start`` to ``stop``, whenever a schema or a priority level changes.

    Guarantees:
        A write that fails is logged, and all statuses are written again after a delay that grows (``Supervisor``).
    """

    def __init__(self, registry: Registry, objects: Objects, owners: Owners, cache: WatchCache, clock: Clock) -> None:
        """Create the controller. It does nothing before ``start``.

        Args:
            registry: The served resources.
            objects: Objects over storage.
            owners: Field managers of objects.
            cache: The watch cache.
            clock: The clock of the server.
        """
        self._registry = registry
        self._objects = objects
        self._owners = owners
        self._cache = cache
        self._clock = clock
        self._changed = asyncio.Event()
        self._task: SupervisedTask | None = None

    def start(self, tasks: Supervisor) -> None:
        """Follow schemas and priority levels until ``stop``. The watch cache must have been started."""
        for resource in (self._registry.get(SCHEMAS), self._registry.get(LEVELS)):
            if resource is None:
                return
            self._cache.observe(resource.storage_prefix, self._notice)
        self._task = tasks.start(self._run, name="flow-schema-status")

    async def stop(self) -> None:
        """Stop watching. Does nothing if it was not started."""
        if self._task is not None:
            await self._task.stop()

    def _notice(self, _: StorageEvent) -> None:
        self._changed.set()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            await self._write_all()
            await self._changed.wait()

    async def _write_all(self) -> None:
        levels = {obj["metadata"]["name"] for obj in await self._all(LEVELS)}
        for schema in await self._all(SCHEMAS):
            await self._write(schema["metadata"]["name"], levels)

    async def _all(self, gvr: GroupVersionResource) -> list[JSONObject]:
        resource = self._resource(gvr)
        result = await self._objects.storage.range(resource.storage_prefix, prefix_end(resource.storage_prefix))
        return [self._objects.tree(resource, kv) for kv in result.items]

    async def _write(self, name: str, levels: set[str]) -> None:
        resource = self._resource(SCHEMAS)
        while (stored := await self._objects.get(resource, "", name)) is not None:
            schema = stored.obj
            level = (schema["spec"].get("priorityLevelConfiguration") or {}).get("name", "")
            condition = dangling(level, timestamp(self._clock.wall()), exists=level in levels)
            before = (schema.get("status") or {}).get("conditions") or ()
            known: JSONObject = next((one for one in before if one.get("type") == "Dangling"), {})
            if all(known.get(key) == condition[key] for key in ("status", "reason", "message")):
                return
            config = {
                "kind": schema["kind"],
                "apiVersion": schema["apiVersion"],
                "metadata": {"name": name},
                "status": {"conditions": [condition]},
            }
            scope = self._owners.scope(resource, "status")
            try:
                await self._objects.write(
                    resource, self._owners.applied(scope, schema, config, MANAGER, force=True), expected=stored.revision
                )
            except PreconditionFailed:
                continue
            return

    def _resource(self, gvr: GroupVersionResource) -> ServedResource:
        result = self._registry.get(gvr)
        if result is None:
            raise LookupError(f"the registry does not serve {gvr}")
        return result


_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class FlowSchema:
    """A parsed FlowSchema. ``by`` distinguishes its flows: ``ByUser``, ``ByNamespace``, or "" for one flow."""

    name: str
    uid: str
    precedence: int
    level: str
    by: str
    rules: tuple[JSONObject, ...]

    @classmethod
    def parse(cls, obj: JSONObject) -> FlowSchema:
        """Parse a stored FlowSchema."""
        spec, metadata = obj.get("spec") or {}, obj["metadata"]
        return cls(
            metadata["name"],
            metadata.get("uid") or "",
            spec.get("matchingPrecedence") or 0,
            (spec.get("priorityLevelConfiguration") or {}).get("name") or "",
            (spec.get("distinguisherMethod") or {}).get("type") or "",
            tuple(spec.get("rules") or ()),
        )

    def match(self, user: User, info: RequestInfo) -> bool:
        """Return whether a request belongs to the schema."""
        return any(_matches(rule, user, info) for rule in self.rules)

    def flow(self, user: User, info: RequestInfo) -> str:
        """Return the name of the flow of a request. Requests of one flow share queues."""
        return user.name if self.by == "ByUser" else info.namespace if self.by == "ByNamespace" else ""


def _matches(rule: JSONObject, user: User, info: RequestInfo) -> bool:
    if not any(_is_subject(one, user) for one in rule.get("subjects") or ()):
        return False
    if info.is_resource:
        return any(_is_resource(one, info) for one in rule.get("resourceRules") or ())
    return any(
        _contains(one.get("verbs") or (), info.verb) and _is_path(one.get("nonResourceURLs") or (), info.path)
        for one in rule.get("nonResourceRules") or ()
    )


def _is_subject(subject: JSONObject, user: User) -> bool:
    match subject.get("kind"):
        case "User":
            return (subject.get("user") or {}).get("name") in ("*", user.name)
        case "Group":
            name = (subject.get("group") or {}).get("name")
            return name == "*" or name in user.groups
        case "ServiceAccount":
            account = subject.get("serviceAccount") or {}
            prefix = f"{_ACCOUNT}{account.get('namespace')}:"
            return user.name.startswith(prefix) and account.get("name") in ("*", user.name.removeprefix(prefix))
    return False


def _is_resource(rule: JSONObject, info: RequestInfo) -> bool:
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    return (
        _contains(rule.get("verbs") or (), info.verb)
        and _contains(rule.get("resources") or (), resource)
        and _contains(rule.get("apiGroups") or (), info.group)
        and (_contains(rule.get("namespaces") or (), info.namespace) if info.namespace else bool(rule.get("clusterScope")))
    )


def _is_path(patterns: Sequence[str], path: str) -> bool:
    for one in patterns:
        prefix = one.removesuffix("*")
        if one in ("*", path) or path.startswith(prefix if prefix.endswith("/") else f"{prefix}/"):
            return True
    return False


def _contains(result: Sequence[str], desired: str) -> bool:
    return desired in result or "*" in result
