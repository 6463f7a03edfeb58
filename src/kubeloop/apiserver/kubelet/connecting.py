"""Which subresources connect a client to something behind the server, by which methods, and what serves them.

What serves them is imported when it is asked for: most servers are never asked for a log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubeloop.apiserver.answers import Reply
from kubeloop.apiserver.request_info import RequestInfo

if TYPE_CHECKING:
    from kubeloop.apiserver.request_scope import RequestScope


@dataclass(frozen=True, slots=True)
class Connecting:
    """``paths``: the path may go on after the subresource."""

    methods: frozenset[str]
    handler: Callable[[RequestScope], Awaitable[Reply]]
    paths: bool = False


def connecting(info: RequestInfo) -> Connecting | None:
    """How a request connects; None when it does not."""
    return _TABLE.get(f"{info.resource}/{info.subresource}") if info.subresource and not info.group else None


async def _log(exchange: RequestScope) -> Reply:
    from kubeloop.apiserver.kubelet.log import log

    return await log(exchange)


async def _exec(exchange: RequestScope) -> Reply:
    from kubeloop.apiserver.kubelet.admitting import admit
    from kubeloop.apiserver.kubelet.streaming import exec_

    await admit(exchange)
    return await exec_(exchange)


async def _attach(exchange: RequestScope) -> Reply:
    from kubeloop.apiserver.kubelet.admitting import admit
    from kubeloop.apiserver.kubelet.streaming import attach

    await admit(exchange)
    return await attach(exchange)


async def _port_forward(exchange: RequestScope) -> Reply:
    from kubeloop.apiserver.kubelet.admitting import admit
    from kubeloop.apiserver.kubelet.streaming import port_forward

    await admit(exchange)
    return await port_forward(exchange)


async def _proxy(exchange: RequestScope) -> Reply:
    from kubeloop.apiserver.kubelet.admitting import admit
    from kubeloop.apiserver.kubelet.proxying import proxy

    await admit(exchange)
    return await proxy(exchange)


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
