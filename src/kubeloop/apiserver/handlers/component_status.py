"""ComponentStatuses, which are computed at each request and never stored. Source: pkg/registry/core/componentstatus.

Scheduler and controller manager report their health directly if they run beside this server; else the server probes upstream's ports.
"""

from __future__ import annotations

import asyncio

from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.registry.options import list_options
from kubeloop.apiserver.store.reader import Selection
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.tables import partial_list, table
from kubeloop.meta.kinds import GroupResource
from kubeloop.reverseproxy.backend import BACKEND_ERRORS, Backend, error_text, request_head
from kubeloop.serving.answer import Answer
from kubeloop.timing import TimeLimit
from kubeloop.types import JSONObject

_STORAGE = "etcd-0"
#: Ports at which upstream probes the components outside the server.
_PORTS = {"controller-manager": 10257, "scheduler": 10259}
#: Timeout of a probe in seconds, and maximum bytes of its response in the status.
_TIMEOUT, _SHOWN = 20.0, 10_000
#: Name of the resource in upstream's NotFound errors.
_SINGULAR = GroupResource("", "componentstatus")


async def list_(scope: RequestScope) -> Answer:
    """Return all ComponentStatuses. Paging and resourceVersion are ignored: there is one page, without a version."""
    options = list_options(scope.request, watch=False)
    selection = Selection(scope.resource, options.label_selector, options.field_selector)
    result = [one for one in await _components(scope) if selection.matches(one)]
    match scope.accepted.form:
        case "Table":
            include, now = scope.request.parameter("includeObject"), scope.services.clock.wall().timestamp()
            return Answer(object=table(scope.resource.gvr.group_resource, result, {}, now=now, include=include))
        case "PartialObjectMetadataList":
            return Answer(object=partial_list(result, {}))
    items = [{name: value for name, value in one.items() if name not in ("kind", "apiVersion")} for one in result]
    return Answer(object={"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": items})


async def get(scope: RequestScope) -> Answer:
    """Return one ComponentStatus. Raises NotFound."""
    name = scope.info.name
    for one in await _components(scope):
        if one["metadata"]["name"] == name:
            return scope.services.renderer.object(scope.resource, scope.accepted, scope.request, one)
    raise api_errors.not_found(_SINGULAR, name)


async def _components(scope: RequestScope) -> list[JSONObject]:
    await scope.services.objects.storage.get("/registry/health")
    faults = await asyncio.gather(*(_fault(scope, name, port) for name, port in _PORTS.items()))
    return [*(_status(name, error) for name, error in zip(_PORTS, faults, strict=True)), _status(_STORAGE, "")]


def _status(name: str, error: str) -> JSONObject:
    condition = {"type": "Healthy", "status": "False" if error else "True", "message": error or "ok"}
    return {"kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name}, "conditions": [condition]}


async def _fault(scope: RequestScope, name: str, port: int) -> str:
    """Return the error of a component, or "" if it is healthy."""
    own = scope.services.components.get(name)
    if own is not None:
        return own()
    place = Backend("127.0.0.1", port, scope.services.kubelets.unverified, "/healthz")
    wire = None
    try:
        async with TimeLimit(scope.services.clock, _TIMEOUT):
            wire = await place.connect()
            head = request_head("GET", place.target, [("Host", place.authority), ("User-Agent", "kube-probe/1.36"), ("Accept", "*/*")])
            status, _ = await wire.exchange("GET", head, None)
            body = b""
            while len(body) < _SHOWN and (part := await wire.chunk()):
                body += part
    except BACKEND_ERRORS as error:
        return f'Get "{place.url}": {error_text(error, place)}'
    finally:
        if wire is not None:
            wire.abort()
    if not 200 <= status < 400:
        return f"HTTP probe failed with statuscode: {status}"
    text = body[:_SHOWN].decode("utf-8", "replace")
    return "" if text == "ok" else text
