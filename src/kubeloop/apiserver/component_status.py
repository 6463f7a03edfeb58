"""ComponentStatuses: made when they are asked for, never stored. Source: pkg/registry/core/componentstatus.

This server has one component to tell of, its storage, under the name that clients know. It does not look for controllers or schedulers.
"""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.answers import Answer
from kubeloop.apiserver.exchange import Exchange
from kubeloop.apiserver.options import list_options
from kubeloop.apiserver.selection import Selection
from kubeloop.apiserver.tables import partial_list, table
from kubeloop.meta.kinds import GroupResource

JSONObject = dict[str, Any]

_STORAGE = "etcd-0"
#: What upstream calls the resource when one is not found.
_SINGULAR = GroupResource("", "componentstatus")


async def list_(exchange: Exchange) -> Answer:
    """Paging and resourceVersion say nothing here: there is one page, and it has no version."""
    options = list_options(exchange.request, watch=False)
    selection = Selection(exchange.resource, options.label_selector, options.field_selector)
    found = [one for one in await _components(exchange) if selection.matches(one)]
    match exchange.accepted.form:
        case "Table":
            include, now = exchange.request.parameter("includeObject"), exchange.parts.clock.wall().timestamp()
            return Answer(object=table(exchange.resource, found, {}, now=now, include=include))
        case "PartialObjectMetadataList":
            return Answer(object=partial_list(found, {}))
    items = [{name: value for name, value in one.items() if name not in ("kind", "apiVersion")} for one in found]
    return Answer(object={"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": items})


async def get(exchange: Exchange) -> Answer:
    """Raises NotFound."""
    name = exchange.info.name
    for one in await _components(exchange):
        if one["metadata"]["name"] == name:
            return exchange.parts.renderer.object(exchange.resource, exchange.accepted, exchange.request, one)
    raise refusals.not_found(_SINGULAR, name)


async def _components(exchange: Exchange) -> list[JSONObject]:
    await exchange.parts.objects.storage.get("/registry/health")
    healthy = {"type": "Healthy", "status": "True", "message": "ok"}
    return [{"kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": _STORAGE}, "conditions": [healthy]}]
