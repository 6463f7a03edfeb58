"""The client of webhooks: one POST of JSON over TLS, on pooled connections.

Source: k8s.io/apiserver pkg/util/webhook (ClientManager), plugin/webhook/{mutating,validating}/dispatcher.go (timeouts).
"""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from kubeloop.apiserver.outbound.failure import CallFailed, NotCallable, why_no_answer, why_refused
from kubeloop.apiserver.outbound.target import ServiceName, Target, target_of, trust
from kubeloop.endpoints.encoding import encode
from kubeloop.http1.client_connection import ClientConnection
from kubeloop.http1.client_heads import request_head
from kubeloop.http1.dial import Dialer
from kubeloop.http1.errors import CONNECTION_FAULTS, ConnectionEnded, ProxyRefusedError
from kubeloop.http1.headers import Headers
from kubeloop.meta.errors import ConfigError
from kubeloop.reverseproxy.egress_policy import EgressPolicy
from kubeloop.timing import Clock, TimeLimit
from kubeloop.types import JSONObject

_HEADERS = (("User-Agent", "kube-apiserver-admission"), ("Accept", "application/json, */*"), ("Content-Type", "application/json"))
#: Maximum number of webhooks whose certificates stay loaded, and maximum number of idle connections to one webhook.
_MOST_TARGETS = 200
_MOST_IDLE = 8
#: Seconds after which an idle connection is not reused. Most servers close idle connections later than that.
_IDLE = 30.0
#: Maximum size of a response in bytes. The response of a conversion webhook may hold a whole list.
_MOST_ANSWERED = 64 * 1024 * 1024


class WebhookClient:
    """Calls webhooks at the addresses that ``reach`` allows (by default loopback addresses only). For one event loop.

    Guarantees
        A call ends within its timeout, with a response or ``CallFailed``. A cancelled call leaves no connection open.
        An authority of the configuration's CA bundle must have signed the webhook's certificate; without a bundle, an authority that the
        system trusts.

    Not guaranteed
        A webhook may be called twice: if an idle connection turns out to be closed, the call is repeated on a new connection.
        Redirects are not followed; they are failures.
    """

    def __init__(
        self, resolve: Callable[[ServiceName], Awaitable[tuple[str, int]]], clock: Clock, reach: EgressPolicy | None = None
    ) -> None:
        self._resolve = resolve
        self._reach = reach or EgressPolicy()
        self._clock = clock
        self._contexts: OrderedDict[bytes, ssl.SSLContext] = OrderedDict()
        self._idle: OrderedDict[Target, list[ClientConnection]] = OrderedDict()
        self._calling: set[asyncio.Task[Any]] = set()

    async def post(self, config: JSONObject, review: JSONObject, *, timeout: int) -> bytes:
        """Send a review to a webhook and return its response.

        Args:
            config: The ``clientConfig`` of the webhook.
            review: The body.
            timeout: Seconds; a query parameter shows it to the webhook.

        Raises:
            CallFailed: The webhook is unreachable, untrusted, too slow, or does not respond with 2xx.
            NotCallable: The configuration is invalid.
        """
        target = target_of(config)
        context = self._context(target)
        query = f"timeout={timeout}s"
        task = asyncio.current_task()
        assert task is not None
        self._calling.add(task)
        try:
            async with TimeLimit(self._clock, timeout):
                status, headers, body = await self._exchange(target, context, query, encode(review))
        except TimeoutError:
            raise _failed(target, query, "context deadline exceeded") from None
        finally:
            self._calling.discard(task)
        if not 200 <= status < 300:
            raise CallFailed(why_refused(status, headers, body))
        if not body:
            kind = headers.get("Content-Type", "")
            raise CallFailed(f"0-length response with status code: {status} and content type: {kind}")
        return body

    async def close(self) -> None:
        """Close all connections, and cancel running calls."""
        calling = list(self._calling)
        for task in calling:
            task.cancel()
        # These tasks belong to requests, and each of them sends its error to its client.
        await asyncio.gather(*calling, return_exceptions=True)
        wires = [wire for idle in self._idle.values() for wire in idle]
        self._idle.clear()
        for wire in wires:
            wire.abort()
        await asyncio.gather(*(wire.wait_closed() for wire in wires))

    async def _exchange(self, target: Target, context: ssl.SSLContext, query: str, body: bytes) -> tuple[int, Headers, bytes]:
        wire = self._take(target)
        if wire is not None:
            try:
                return await self._ask(wire, target, query, body)
            except (ConnectionEnded, ConnectionError):
                pass  # closed while it was idle
            except CONNECTION_FAULTS as fault:
                raise _failed(target, query, why_no_answer(fault, target.host, target.port)) from fault
        host, port = target.host, target.port
        try:
            if target.service is None:
                wire = await self._straight(target, context)
            else:
                host, port = await self._resolve(target.service)
                wire = await self._reach.open(host, port, context, target.host)
            return await self._ask(wire, target, query, body)
        except CallFailed as fault:
            raise _failed(target, query, str(fault)) from None
        except ProxyRefusedError as fault:
            raise _failed(target, query, f"proxyconnect tcp: {fault}") from fault
        except ConfigError as fault:
            raise NotCallable(str(fault)) from fault
        except CONNECTION_FAULTS as fault:
            name = target.host if isinstance(fault, ssl.SSLError) else host
            raise _failed(target, query, why_no_answer(fault, name, port)) from fault

    async def _straight(self, target: Target, context: ssl.SSLContext) -> ClientConnection:
        """Connect to the host of a URL.

        The proxy of the environment is used only if the egress policy allows all addresses, because a proxy would evade the policy.
        """
        if self._reach.anywhere:
            return await Dialer(f"https://{target.authority}", "", target.host, clock=self._clock).connect(context)
        return await self._reach.open(target.host, target.port, context, target.host)

    async def _ask(self, wire: ClientConnection, target: Target, query: str, body: bytes) -> tuple[int, Headers, bytes]:
        head = request_head("POST", "", f"{target.path}?{query}", [("Host", target.authority), *_HEADERS], len(body))
        try:
            status, headers = await wire.exchange("POST", head, body)
            parts, size = [], 0
            while part := await wire.chunk():
                parts.append(part)
                size += len(part)
                if size > _MOST_ANSWERED:
                    raise CallFailed(f"http: response body too large: more than {_MOST_ANSWERED} bytes")
        except BaseException:
            wire.abort()
            raise
        self._give_back(target, wire)
        return status, headers, b"".join(parts)

    def _take(self, target: Target) -> ClientConnection | None:
        idle = self._idle.get(target, [])
        old = self._clock.now() - _IDLE
        while idle:
            wire = idle.pop()
            if wire.reusable and wire.idle_since > old:
                return wire
            wire.abort()
        self._idle.pop(target, None)
        return None

    def _give_back(self, target: Target, wire: ClientConnection) -> None:
        idle = self._idle.setdefault(target, [])
        self._idle.move_to_end(target)
        if not wire.reusable or len(idle) >= _MOST_IDLE:
            wire.abort()
            return
        wire.idle_since = self._clock.now()
        idle.append(wire)
        while len(self._idle) > _MOST_TARGETS:
            for one in self._idle.popitem(last=False)[1]:
                one.abort()

    def _context(self, target: Target) -> ssl.SSLContext:
        context = self._contexts.get(target.ca)
        if context is None:
            context = self._contexts[target.ca] = trust(target.ca)
            if len(self._contexts) > _MOST_TARGETS:
                self._contexts.popitem(last=False)
        else:
            self._contexts.move_to_end(target.ca)
        return context


def _failed(target: Target, query: str, why: str) -> CallFailed:
    return CallFailed(f'Post "{target.url}?{query}": {why}')
