"""Which subresources connect a client to something behind the server, by which methods, and what serves them.

What serves them is imported when it is asked for: most servers are never asked for a log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubeloop.apiserver.request.answers import Reply
from kubeloop.apiserver.request.info import RequestInfo

if TYPE_CHECKING:
    from kubeloop.apiserver.handlers.scope import RequestScope


@dataclass(frozen=True, slots=True)
class Connecting:
    """``paths``: the path may go on after the subresource."""

    methods: frozenset[str]
    handler: Callable[[RequestScope], Awaitable[Reply]]
    paths: bool = False


def connecting(info: RequestInfo) -> Connecting | None:
    """How a request connects; None when it does not."""
    return _TABLE.get(f"{info.resource}/{info.subresource}") if info.subresource and not info.group else None


async def _log(scope: RequestScope) -> Reply:
    from kubeloop.apiserver.handlers.kubelet.log import log

    return await log(scope)


async def _exec(scope: RequestScope) -> Reply:
    from kubeloop.apiserver.handlers.kubelet.options import admit
    from kubeloop.apiserver.handlers.kubelet.streaming import exec_

    await admit(scope)
    return await exec_(scope)


async def _attach(scope: RequestScope) -> Reply:
    from kubeloop.apiserver.handlers.kubelet.options import admit
    from kubeloop.apiserver.handlers.kubelet.streaming import attach

    await admit(scope)
    return await attach(scope)


async def _port_forward(scope: RequestScope) -> Reply:
    from kubeloop.apiserver.handlers.kubelet.options import admit
    from kubeloop.apiserver.handlers.kubelet.streaming import port_forward

    await admit(scope)
    return await port_forward(scope)


async def _proxy(scope: RequestScope) -> Reply:
    from kubeloop.apiserver.handlers.kubelet.options import admit
    from kubeloop.apiserver.handlers.kubelet.proxying import proxy

    await admit(scope)
    return await proxy(scope)


_STREAMS = frozenset({"GET", "POST"})
_ALL = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_TABLE = {
    "pods/log": Connecting(frozenset({"GET"}), _log),
    "pods/exec": Connecting(_STREAMS, _exec),
    "pods/attach": Connecting(_STREAMS, _attach),
    "pods/portforward": Connecting(_STREAMS, _port_forward),
    "pods/proxy": Connecting(_ALL, _proxy, paths=True),
    "services/proxy": Connecting(_ALL, _proxy, paths=True),
    "nodes/proxy": Connecting(_ALL, _proxy, paths=True),
}
