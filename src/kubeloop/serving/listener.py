"""A TLS listener on asyncio with a graceful end of its streams.

``http1`` handles the bytes; handlers see only ``Request`` and the kinds of ``Reply``.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import weakref
from collections.abc import Callable, Coroutine, Hashable, Mapping
from functools import partial
from typing import Any

from kubeloop.meta.errors import ConfigError, KubeloopError
from kubeloop.meta.tls import load_pair, server_tls
from kubeloop.serving.acceptor import MAX_HANDSHAKES, Acceptor
from kubeloop.serving.connection import Handler, ServerConnection
from kubeloop.tasks import close_all, end_tasks, finish

#: Seconds for running requests when the listener ends.
_GRACE = 2.0

#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME (openssl/x509_vfy.h), which ssl does not name.
_NO_CHECK_TIME = 0x200000


class Listener:
    """Serves ``handler`` at one address until ``close``.

    Guarantees
        A stream's source is closed when its client disconnects or the listener ends. Running complete responses are finished first.
        After ``close`` no connection remains, including connections in or just after their handshake.
        The number of TLS handshakes that run at the same time is limited; further connections wait in the accept queue (``Acceptor``).

    Raises
        ConfigError: ``bind`` raises it if the address is in use or not local; the text names it and the fix.
    """

    def __init__(
        self,
        handler: Handler,
        context: ssl.SSLContext | None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        max_handshakes: int = MAX_HANDSHAKES,
    ) -> None:
        """Create the listener. ``bind`` opens its address.

        Args:
            handler: Returns the reply to each request.
            context: TLS of the connections; None for plain HTTP.
            host: The address to bind.
            port: The port to bind; 0 for a free port, which ``port`` then names.
            max_handshakes: Maximum number of TLS handshakes at the same time.
        """
        self._handler = handler
        self._context = context
        self._host = host
        self.port = port
        self._max_handshakes = max_handshakes
        self._acceptor: Acceptor | None = None
        self._streams: set[asyncio.Task[Any]] = set()
        self._connections: weakref.WeakSet[ServerConnection] = weakref.WeakSet()
        self._ending = False

    @property
    def url(self) -> str:
        scheme = "https" if self._context is not None else "http"
        return f"{scheme}://{host_and_port(self._host, self.port)}"

    async def bind(self) -> None:
        """Bind the address; connections wait until ``serve``."""
        try:
            # Only for its sockets: asyncio resolves and binds the address, and a duplicate has the socket's whole interface.
            server = await asyncio.get_running_loop().create_server(asyncio.Protocol, self._host, self.port, start_serving=False)
        except OSError as fault:
            address = host_and_port(self._host, self.port)
            raise ConfigError(
                f"cannot listen on {address}: {fault.strerror or fault}; choose another port, or 0 for any that is free"
            ) from None
        sockets = [bound.dup() for bound in server.sockets]
        server.close()
        self.port = sockets[0].getsockname()[1]
        self._acceptor = Acceptor(sockets, self._accepted, self._context, max_handshakes=self._max_handshakes)

    async def serve(self) -> None:
        """Start to accept and serve connections."""
        assert self._acceptor is not None
        self._acceptor.start()

    def abort(self) -> None:
        """Cut all connections at once and stop listening, as if the process had died. Call ``close`` afterwards."""
        if self._acceptor is not None:
            self._acceptor.abort()
        for connection in list(self._connections):
            connection.abort()

    async def close(self, *, grace: float = _GRACE, spread: float = 0.0) -> None:
        """Stop listening, end streams, finish running requests.

        ``grace`` is the number of seconds for running requests, which are aborted afterwards. Streams are ended over a period of ``spread``
        seconds, so that not all clients reconnect at the same time; 0 ends all streams at once.

        Raises:
            asyncio.CancelledError: The caller was cancelled. Everything is closed nevertheless.
        """
        self._ending = True
        await close_all(
            self._stop_listening,
            self._end_handshakes,
            partial(self._end_streams, spread),
            partial(self._finish_answers, grace),
            lambda: finish(self._break_off()),
        )

    async def _stop_listening(self) -> None:
        if self._acceptor is not None:
            self._acceptor.stop()

    async def _end_streams(self, spread: float) -> None:
        try:
            if spread and self._streams:
                pause = spread / len(self._streams)
                for task in list(self._streams):
                    task.cancel()
                    await asyncio.sleep(pause)
        finally:
            for task in list(self._streams):
                task.cancel()

    async def _finish_answers(self, grace: float) -> None:
        for connection in list(self._connections):
            connection.finish()
        await self._over(grace)

    async def _break_off(self) -> None:
        for connection in list(self._connections):
            connection.abort()
            if connection.task is not None:
                connection.task.cancel()
        await self._over(_GRACE)

    def _accepted(self) -> ServerConnection:
        """Return the protocol of a new connection."""
        return ServerConnection(self._handler, self._until_end, self._opened)

    def _opened(self, connection: ServerConnection) -> None:
        self._connections.add(connection)
        if self._ending:
            connection.abort()

    async def _end_handshakes(self) -> None:
        if self._acceptor is not None:
            await self._acceptor.end_handshakes()

    async def _over(self, seconds: float) -> None:
        """Wait until all connections have ended, but at most ``seconds``."""
        waiting = [part for one in self._connections for part in (one.ended, one.task) if part is not None and not part.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)

    async def _until_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work of a stream. A cancellation by the listener's end does not count as an error."""
        pump = asyncio.ensure_future(work)
        self._streams.add(pump)
        try:
            await asyncio.wait((pump,))
        except asyncio.CancelledError:
            await end_tasks(pump)
            raise
        finally:
            self._streams.discard(pump)
        if not (pump.cancelled() and self._ending):
            pump.result()


def host_and_port(host: str, port: int) -> str:
    """Format an address for a URL, with IPv6 addresses in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bare_context() -> ssl.SSLContext:
    """Return a TLS context for a server that requests client certificates without requiring them; it has no server certificate yet."""
    context = server_tls()
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= _NO_CHECK_TIME
    return context


def server_context(certificate: bytes, key: bytes, client_authority: bytes) -> ssl.SSLContext:
    """Return a TLS context for a server that requests client certificates without requiring them.

    A client without a certificate is anonymous; a certificate of another authority is refused during the handshake. An expired one is
    accepted, as by kube-apiserver, which answers 401: the authenticator must check its validity. All arguments are PEM.
    """
    context = bare_context()
    context.load_verify_locations(cadata=client_authority.decode())
    load_pair(context, certificate, key)
    return context


_LOG = logging.getLogger("kubeloop.serving")

#: Contexts by server name (SNI); the empty name is the default.
Contexts = Mapping[str, ssl.SSLContext]


class RotatingContext:
    """A pair of TLS contexts that is rebuilt when its sources change.

    ``make`` builds the contexts, first at once and then whenever the result of ``mark`` changes. ``mark`` is called for each connection.

    If ``make`` fails, the previous contexts stay in use, and the error is logged.

    Raises:
        Any error of the first call of ``make``.
    """

    def __init__(self, make: Callable[[], Contexts], mark: Callable[[], Hashable]) -> None:
        self._make = make
        self._mark = mark
        self._made_for = mark()
        self._contexts = make()
        # This context stays for the listener's lifetime: connections take only certificates and authorities from the others.
        self.context = bare_context()
        self.context.sni_callback = self._choose

    def refresh(self) -> None:
        """Rebuild the contexts if their sources changed."""
        mark = self._mark()
        if mark == self._made_for:
            return
        self._made_for = mark
        try:
            self._contexts = self._make()
        except (KubeloopError, OSError, ValueError) as fault:  # ssl.SSLError is an OSError
            _LOG.warning("certificates cannot be read again; those read before stay in use: %s", fault)
        else:
            _LOG.info("certificates were read again")

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        self.refresh()
        connection.context = self._contexts.get(name or "") or self._contexts[""]
