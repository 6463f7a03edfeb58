"""The table of subresources that connect a client to a kubelet, pod, service or node (upstream: rest.Connecter).

Their handlers are imported at the first request: most servers never serve a log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.serving.answer import Reply

if TYPE_CHECKING:
    from kubeloop.apiserver.handlers.scope import RequestScope


@dataclass(frozen=True, slots=True)
class Connecter:
    """A subresource that connects a client to a kubelet, pod, service or node.

    If ``paths`` is True, the path of the request may continue after the subresource.
    """

    methods: frozenset[str]
    handler: Callable[[RequestScope], Awaitable[Reply]]
    paths: bool = False


def find_connecter(info: RequestInfo) -> Connecter | None:
    """Return the connecter of a request, or None if it is not for a subresource that connects."""
    return _TABLE.get(f"{info.resource}/{info.subresource}") if info.subresource and not info.group else None


async def _log(scope: RequestScope) -> Reply:
    from kubeloop.apiserver.handlers.kubelet.pods import log

    return await log(scope)


async def _exec(scope: RequestScope) -> Reply:
    from kubeloop.apiserver.handlers.kubelet.options import admit
    from kubeloop.apiserver.handlers.kubelet.pods import exec_

    await admit(scope)
    return await exec_(scope)


async def _attach(scope: RequestScope) -> Reply:
    from kubeloop.apiserver.handlers.kubelet.options import admit
    from kubeloop.apiserver.handlers.kubelet.pods import attach

    await admit(scope)
    return await attach(scope)


async def _port_forward(scope: RequestScope) -> Reply:
    from kubeloop.apiserver.handlers.kubelet.options import admit
    from kubeloop.apiserver.handlers.kubelet.pods import port_forward

    await admit(scope)
    return await port_forward(scope)


async def _proxy(scope: RequestScope) -> Reply:
    from kubeloop.apiserver.handlers.kubelet.options import admit
    from kubeloop.apiserver.handlers.kubelet.proxy import proxy

    await admit(scope)
    return await proxy(scope)


_STREAMS = frozenset({"GET", "POST"})
_ALL = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_TABLE = {
    "pods/log": Connecter(frozenset({"GET"}), _log),
    "pods/exec": Connecter(_STREAMS, _exec),
    "pods/attach": Connecter(_STREAMS, _attach),
    "pods/portforward": Connecter(_STREAMS, _port_forward),
    "pods/proxy": Connecter(_ALL, _proxy, paths=True),
    "services/proxy": Connecter(_ALL, _proxy, paths=True),
    "nodes/proxy": Connecter(_ALL, _proxy, paths=True),
}
