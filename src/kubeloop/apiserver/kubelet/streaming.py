"""``/exec``, ``/attach`` and ``/portforward`` of pods: connections that become streams between the client and the pod's kubelet.

WebSockets of a kind that the node's kubelet does not know are translated (``translating``, ``tunnelling``); all else is passed on as it
comes. Source: k8s.io/kubernetes pkg/registry/core/pod/rest/subresources.go, KEP-4006.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from msgspec import structs

from kubeloop.apiserver import refusals
from kubeloop.apiserver.answers import Reply
from kubeloop.apiserver.authorization import access_of
from kubeloop.apiserver.exchange import Exchange
from kubeloop.apiserver.kubelet.backends import SAFE, Place
from kubeloop.apiserver.kubelet.nodes import kubelet_of
from kubeloop.apiserver.kubelet.objects import container_of, pod_of
from kubeloop.apiserver.kubelet.options import Parameters, encoded, port_parameters, stream_parameters
from kubeloop.apiserver.kubelet.translating import V5, translate
from kubeloop.apiserver.kubelet.tunnelling import is_tunnel, tunnel
from kubeloop.apiserver.kubelet.upgrading import is_upgrade, is_websocket, pass_on, subprotocols


@dataclass(frozen=True, slots=True)
class _Wanted:
    place: Place
    websockets: bool
    parameters: Parameters


async def exec_(exchange: Exchange) -> Reply:
    """Run a command in a container."""
    parameters = stream_parameters(exchange.request, command=True)
    return await _run(exchange, await _in_container(exchange, "exec", parameters))


async def attach(exchange: Exchange) -> Reply:
    """Take part in what a container's process reads and writes."""
    parameters = stream_parameters(exchange.request, command=False)
    return await _run(exchange, await _in_container(exchange, "attach", parameters))


async def port_forward(exchange: Exchange) -> Reply:
    """Connections to ports of a pod."""
    _may_create(exchange)
    parameters = port_parameters(exchange.request)
    wanted = await _wanted(exchange, "portForward", "", parameters)
    if not wanted.websockets and is_websocket(exchange.request) and is_tunnel(exchange.request):
        return await tunnel(exchange.request, wanted.place)
    return await _pass_on(exchange, wanted)


async def _in_container(exchange: Exchange, action: str, parameters: Parameters) -> _Wanted:
    _may_create(exchange)
    pod = await pod_of(exchange, exchange.info.name)
    return await _wanted(exchange, action, container_of(pod, exchange.request.parameter("container")), parameters)


def _may_create(exchange: Exchange) -> None:
    """WebSockets come as GET; what they do needs the permission to create all the same (kubernetes issue 133515).

    Raises:
        BadRequest: a dry run, which there is none of.
        Forbidden
    """
    if "dryRun" in exchange.request.query:
        raise refusals.bad_request("dryRun is not supported")
    if exchange.info.verb != "create":
        decision = exchange.parts.authorizer.authorize(access_of(exchange.user, structs.replace(exchange.info, verb="create")))
        if not decision.allowed:
            raise refusals.forbidden(exchange.info.group_resource, exchange.info.name, decision.reason)


async def _wanted(exchange: Exchange, action: str, container: str, parameters: Parameters) -> _Wanted:
    name = exchange.info.name
    pod = await pod_of(exchange, name)
    node = (pod.get("spec") or {}).get("nodeName")
    if not node:
        raise refusals.bad_request(f"pod {name} does not have a host assigned")
    kubelet = await kubelet_of(exchange, node)
    parts = ["", action, exchange.namespace, name, *([container] if container else [])]
    path = quote("/".join(parts), safe=SAFE)
    place = Place(kubelet.host, kubelet.port, exchange.parts.kubelets.context, path, encoded(parameters))
    return _Wanted(place, kubelet.websockets, parameters)


async def _run(exchange: Exchange, wanted: _Wanted) -> Reply:
    request = exchange.request
    if not wanted.websockets and is_websocket(request) and V5 in subprotocols(request):
        return translate(wanted.place, frozenset(name for name, _ in wanted.parameters))
    return await _pass_on(exchange, wanted)


async def _pass_on(exchange: Exchange, wanted: _Wanted) -> Reply:
    if not is_upgrade(exchange.request):
        raise refusals.bad_request("Upgrade request required")
    return await pass_on(exchange.request, wanted.place)
