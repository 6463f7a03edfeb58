"""An NGINX with Lua: hosts, paths, endpoints and certificates are sent to it while it runs; few changes are a reload."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import islice
from pathlib import Path

import msgspec

from examples.ingress_nginx.model.configuration import Certificate, Changes, Configuration
from examples.ingress_nginx.nginx.binary import NginxBinary
from examples.ingress_nginx.nginx.conf_file import system_resolvers
from examples.ingress_nginx.nginx.default_certificate import self_signed_certificate
from examples.ingress_nginx.nginx.dynamic import DynamicConfiguration, DynamicRenderer
from examples.ingress_nginx.nginx.process import STATUS_SOCKET, NginxProcess
from examples.ingress_nginx.nginx.server import ApplyResult, ConfigurationRefused, NginxError

#: Bytes of documents in one request: a worker does nothing else while it stores them.
_BATCH_SIZE = 1 << 20
#: Prefixes of the documents that refer to nothing in nginx.conf.
_INDEPENDENT = ("b:", "c:")

_logger = logging.getLogger(__name__)


class RequestCount(msgspec.Struct, frozen=True):
    """How many requests of a route were answered with a status.

    Attributes:
        count: The number since NGINX's master started.
        status: Status of the answers.
        origin: The object of the route, such as ``Ingress shop/web``; empty: no route, and the default backend answered.
        host: Host of the server; empty: no server.
        path: Path of the location, without a slash at its end if it is a prefix.
        backend: Name of the backend; empty: NGINX answered by itself.
        method: Method of the requests; OTHER: none of RFC 9110 and PATCH.
    """

    count: int
    status: int
    origin: str
    host: str
    path: str
    backend: str
    method: str


class _StoredDocuments(msgspec.Struct):
    last: int
    keys: list[str]


class DocumentsLost(NginxError):
    """NGINX does not have the documents that it was sent before; all of them must be sent."""


class DocumentChannel:
    """Sends documents to the status server, in numbered batches.

    NGINX refuses a batch that does not follow its last one, as after a crash.
    """

    def __init__(self, process: NginxProcess) -> None:
        self._process = process
        self._last = 0

    async def send(self, put: Mapping[str, str], delete: Iterable[str]) -> None:
        """Send changes. NGINX uses them together. Raises NginxError; DocumentsLost if all documents must be sent."""
        batches = list(_batches(put, delete))
        for number, (some_put, some_delete) in enumerate(batches, start=1):
            batch = {"put": some_put, "delete": some_delete, "after": self._last, "complete": number == len(batches)}
            status, answer = await self._process.status.request("POST", "/documents", msgspec.json.encode(batch))
            if status == 409:
                raise DocumentsLost("NGINX does not have the last documents")
            if status != 201:
                raise NginxError(f"NGINX refuses documents: {status} {answer.decode(errors='replace').strip()[:200]}")
            self._last = int(answer)

    async def send_all(self, documents: Mapping[str, str]) -> None:
        """Replace all documents of NGINX. Raises NginxError."""
        stored = msgspec.json.decode(await self._process.status.get("/documents"), type=_StoredDocuments)
        self._last = stored.last
        await self.send(documents, set(stored.keys) - documents.keys())


class LuaNginx:
    """Runs NGINX with Lua; implements ``NginxServer``.

    Guarantees:
        When ``apply`` returns, the next request meets the new configuration.
        A reload keeps the documents; a master that was restarted after a crash gets all of them again, and answers 503 until then.

    Args:
        binary: The program with Lua's modules, as ``find_nginx`` returns it.
        folder: For its files; only one NGINX uses it.
        fallback: The default certificate where the cluster has none; None: a self-signed one.
        resolvers: DNS servers for names of ExternalName services; None: those of the machine.
    """

    dynamic = True

    def __init__(
        self, binary: NginxBinary, folder: Path, *, fallback: Certificate | None = None, resolvers: Sequence[str] | None = None
    ) -> None:
        if not binary.has_lua:
            raise NginxError(f"{binary.path} has no Lua; install libnginx-mod-http-lua and lua-cjson, or run without Lua")
        self.process = NginxProcess(binary, folder)
        self.process.after_restart = self._send_after_restart
        self.renderer = DynamicRenderer(
            binary, fallback or self_signed_certificate(), system_resolvers() if resolvers is None else resolvers
        )
        self._channel = DocumentChannel(self.process)
        self._sending = asyncio.Lock()
        #: The documents of NGINX; the renderer is ahead after a failure, and while changes wait for a reload.
        self._delivered: dict[str, str] = {}
        self._owed = _Owed()
        self._shutdown_seconds = 240.0
        #: Changes that were rendered, but did not reach NGINX.
        self._failed = False

    async def serves_http2_beside_http1(self) -> bool:
        return self.process.binary.http2_directive

    async def start(self, configuration: Configuration) -> None:
        """Start NGINX with this configuration. Raises NginxError."""
        rendered = await self._install(self.renderer.render(configuration), configuration, self.process.start)
        try:
            (self.process.folder / STATUS_SOCKET).chmod(0o600)
            async with self._sending:
                await self._channel.send_all(rendered.put)
        except BaseException:
            await self.process.stop(0)
            raise
        self._note(configuration)

    async def apply(self, configuration: Configuration, changes: Changes, *, may_reload: bool = True) -> ApplyResult:
        """Bring NGINX from the last applied configuration to this one. See ``NginxServer``."""
        if not changes and not self._failed and not self._owed:
            return ApplyResult(reloaded=False)
        if changes.certificates or changes.settings:
            self.renderer.excluded.clear()
        rendered = self.renderer.render(configuration, None if self._failed else changes)
        failed, self._failed = self._failed, True
        self._owed.merge(rendered.put, rendered.delete)
        if rendered.reason and not may_reload:
            await self._send_independent(resend_all=failed)
            self._failed = False
            return ApplyResult(reloaded=False, deferred=rendered.reason)
        if rendered.reason:
            try:
                rendered = await self._install(rendered, configuration, self.process.apply)
            except NginxError:
                # Endpoints must not wait for a reload that fails. What follows is rendered again with the next configuration.
                with contextlib.suppress(NginxError):
                    await self._send_independent(resend_all=failed)
                raise
        await self._send(*self._owed.take(), self.renderer.documents, resend_all=failed)
        self._failed = False
        self._note(configuration)
        return ApplyResult(reloaded=bool(rendered.reason), reason=rendered.reason)

    async def _send_independent(self, *, resend_all: bool) -> None:
        """Send the documents that NGINX can use with the nginx.conf that it has."""
        put, delete = self._owed.take_independent()
        complete = self._delivered | put
        await self._send(put, delete, complete, resend_all=resend_all)
        self._delivered = complete

    async def _send(self, put: Mapping[str, str], delete: AbstractSet[str], complete: Mapping[str, str], *, resend_all: bool) -> None:
        """Send changed documents, or all of them. ``complete``: all documents after the change."""
        async with self._sending:
            try:
                if resend_all:
                    await self._channel.send_all(complete)
                elif put or delete:
                    await self._channel.send(put, delete)
            except DocumentsLost:
                await self._channel.send_all(complete)

    async def healthy(self) -> None:
        """Raise NginxError if the process does not answer."""
        await self.process.healthy()

    async def stop(self) -> None:
        """Finish requests in progress, for at most ``settings.shutdown_seconds``, then end the process."""
        await self.process.stop(self._shutdown_seconds)

    async def request_counts(self) -> list[RequestCount]:
        """Return how many requests NGINX has answered since its master started. Raises NginxError."""
        return msgspec.json.decode(await self.process.status.get("/metrics-data"), type=list[RequestCount])

    async def _install(
        self, rendered: DynamicConfiguration, configuration: Configuration, deliver: Callable[[str, Mapping[str, bytes]], Awaitable[None]]
    ) -> DynamicConfiguration:
        """Deliver nginx.conf. Locations of a policy that NGINX refuses answer 503; the others are served."""
        while True:
            try:
                await deliver(rendered.text, rendered.files)
            except ConfigurationRefused as refusal:
                name = _refused_policy(rendered.text, str(refusal))
                if not name or name in self.renderer.excluded:
                    raise
                _logger.error("locations of a policy answer 503: %s", refusal)  # noqa: TRY400
                self.renderer.excluded.add(name)
                again = self.renderer.render(configuration, Changes())
                rendered = replace(rendered, text=again.text, files=again.files, reason=again.reason)
            else:
                return rendered

    def _note(self, configuration: Configuration) -> None:
        self.renderer.delivered()
        self._delivered = dict(self.renderer.documents)
        self._owed = _Owed()
        self._shutdown_seconds = configuration.settings.shutdown_seconds

    async def _send_after_restart(self) -> None:
        (self.process.folder / STATUS_SOCKET).chmod(0o600)
        try:
            async with self._sending:
                await self._channel.send_all(self._delivered)
        except NginxError as error:
            self._failed = True
            _logger.error("NGINX was restarted, but has no configuration: %s", error)  # noqa: TRY400


class _Owed:
    """Documents that NGINX does not have yet."""

    def __init__(self) -> None:
        self._put: dict[str, str] = {}
        self._delete: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._put or self._delete)

    def merge(self, put: Mapping[str, str], delete: AbstractSet[str]) -> None:
        """Add new and changed documents, and keys of removed ones."""
        self._put = {key: text for key, text in self._put.items() if key not in delete} | dict(put)
        self._delete = (self._delete - put.keys()) | delete

    def take(self) -> tuple[dict[str, str], set[str]]:
        """Remove and return everything."""
        put, delete, self._put, self._delete = self._put, self._delete, {}, set()
        return put, delete

    def take_independent(self) -> tuple[dict[str, str], set[str]]:
        """Remove and return what NGINX can have before its nginx.conf: backends and certificates. Hosts refer to locations of that file."""
        put = {key: text for key, text in self._put.items() if key.startswith(_INDEPENDENT)}
        self._put = {key: text for key, text in self._put.items() if key not in put}
        return put, set()


def _refused_policy(text: str, message: str) -> str:
    """Return the name of the policy in whose location NGINX found an error; empty: it is elsewhere."""
    match = re.search(r"candidate\.conf:(\d+)", message)
    line = next(islice(text.split("\n"), int(match.group(1)) - 1, None), "") if match else ""
    found = re.match(r"location (@policy_\d+)", line)
    return found.group(1) if found else ""


def _batches(put: Mapping[str, str], delete: Iterable[str]) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Split changes into batches: at least one, the removed documents in the last one."""
    some: dict[str, str] = {}
    size = 0
    for key, text in put.items():
        if some and size + len(text) > _BATCH_SIZE:
            yield some, []
            some, size = {}, 0
        some[key] = text
        size += len(text)
    yield some, list(delete)
