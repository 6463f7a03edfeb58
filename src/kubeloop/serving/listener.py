"""A TLS listener on asyncio: requests in, answers out, and an end that lets streams finish.

Bytes are the affair of ``http1``; handlers see ``Request`` and the kinds of ``Reply`` only.
"""

from __future__ import annotations

import asyncio
import ssl
import weakref
from collections.abc import Coroutine
from functools import partial
from typing import Any

from kubeloop.meta.errors import ConfigError
from kubeloop.meta.tls import server_tls
from kubeloop.serving.accepting import close_listening, stop_accepting
from kubeloop.serving.connection import Handler, ServerConnection
from kubeloop.tasks import close_all, end_tasks, finish, wait_all

__all__ = ["Handler", "Listener", "bare_context", "host_and_port", "server_context"]

#: Seconds for answers under way when the listener ends.
_GRACE = 2.0

#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME (openssl/x509_vfy.h), for which ssl has no name.
_NO_CHECK_TIME = 0x200000


class Listener:
    """Serves ``handler`` at one address until ``close``.

    Guarantees
        A stream's source is closed as soon as its client has gone or the listener ends. Whole answers under way are finished first.
        After ``close`` no connection is left, neither one that had begun its handshake nor one that ended it meanwhile.

    Raises
        ConfigError: from ``bind``, when the address is taken or not ours; the text says which and what to do.
    """

    def __init__(self, handler: Handler, context: ssl.SSLContext | None, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._handler = handler
        self._context = context
        self._host = host
        self.port = port
        self._server: asyncio.Server | None = None
        self._streams: set[asyncio.Task[Any]] = set()
        self._connections: weakref.WeakSet[ServerConnection] = weakref.WeakSet()
        self._accepting: set[asyncio.Task[Any]] = set()
        self._ending = False

    @property
    def url(self) -> str:
        scheme = "https" if self._context is not None else "http"
        return f"{scheme}://{host_and_port(self._host, self.port)}"

    async def bind(self) -> None:
        """Take the address; connections wait until ``serve``."""
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._accepted,
                self._host,
                self.port,
                ssl=self._context,
                backlog=1024,
                start_serving=False,
            )
        except OSError as fault:
            address = host_and_port(self._host, self.port)
            raise ConfigError(
                f"cannot listen on {address}: {fault.strerror or fault}; choose another port, or 0 for any that is free"
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def serve(self) -> None:
        """Answer from now on."""
        assert self._server is not None
        await self._server.start_serving()

    def abort(self) -> None:
        """Break every connection off at once and stop listening, as when the process dies. ``close`` is still due."""
        if self._server is not None:
            stop_accepting(self._server)
            asyncio.get_running_loop().call_soon(self._server.close)
        for task in list(self._accepting):
            task.cancel()
        for connection in list(self._connections):
            connection.abort()

    async def close(self, *, grace: float = _GRACE, spread: float = 0.0) -> None:
        """Stop listening, end streams, finish answers.

        ``grace``: seconds for answers under way; then they are broken off. ``spread``: seconds over which streams are ended, so that not
        all of their clients come back at once; 0: at once.

        Raises:
            asyncio.CancelledError: The caller was cancelled, which ends the wait that it hit; everything is closed.
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
        if self._server is not None:
            await close_listening(self._server)

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
        """For a connection that is to shake hands: asyncio calls this in a task of its own, which closes the connection when cancelled."""
        task = asyncio.current_task()
        if task is not None:
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)
        return ServerConnection(self._handler, self._until_end, self._opened)

    def _opened(self, connection: ServerConnection) -> None:
        self._connections.add(connection)
        if self._ending:
            connection.abort()

    async def _end_handshakes(self) -> None:
        for task in list(self._accepting):
            task.cancel()
        if self._accepting:
            await wait_all(*self._accepting)
            await asyncio.sleep(0)  # in which their sockets are closed

    async def _over(self, seconds: float) -> None:
        """Returns when every connection is over, or after so many seconds."""
        waiting = [part for one in self._connections for part in (one.ended, one.task) if part is not None and not part.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)

    async def _until_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work of a stream; the listener's own end cancels it, which is no fault."""
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
    """An address as a URL has it: IPv6 addresses in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bare_context() -> ssl.SSLContext:
    """TLS for a server that asks for client certificates without insisting, and has none of its own yet."""
    context = server_tls()
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= _NO_CHECK_TIME
    return context


def server_context(certificate: bytes, key: bytes, client_authority: bytes) -> ssl.SSLContext:
    """TLS for a server that asks for client certificates without insisting.

    Who sends none is anonymous; who sends one of another authority is refused during the handshake. One that is expired comes through, as
    with kube-apiserver, which answers 401: whoever authenticates must look at its times. PEM in; the key is in a file of mode 0600 only
    while it is loaded, since ssl reads files only.
    """
    import tempfile
    from pathlib import Path

    context = bare_context()
    context.load_verify_locations(cadata=client_authority.decode())
    with tempfile.TemporaryDirectory(prefix="kubeloop-") as folder:  # the folder is 0700, so nobody else can look in
        path = Path(folder, "pair.pem")
        path.touch(mode=0o600)
        path.write_bytes(certificate + key)
        context.load_cert_chain(path)
    return context
