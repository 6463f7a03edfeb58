"""An NGINX without Lua: the whole configuration is in nginx.conf, and each change is a reload."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from examples.ingress_nginx.model.configuration import Certificate, Changes, Configuration, ServerKey
from examples.ingress_nginx.nginx.binary import NginxBinary
from examples.ingress_nginx.nginx.conf_file import system_resolvers
from examples.ingress_nginx.nginx.default_certificate import self_signed_certificate
from examples.ingress_nginx.nginx.process import NginxProcess
from examples.ingress_nginx.nginx.server import ApplyResult, ConfigurationRefused
from examples.ingress_nginx.nginx.static import RenderedConfiguration, StaticRenderer

#: How many servers are left out of one configuration before it is refused as a whole.
MOST_EXCLUSIONS = 20

_logger = logging.getLogger(__name__)


class StaticNginx:
    """Runs NGINX with the whole configuration in nginx.conf; implements ``NginxServer``.

    A server whose text NGINX refuses, such as one with a path that is no regular expression for NGINX, answers 503 until it changes;
    the others are served. ``excluded`` has NGINX's messages.

    Args:
        binary: The program, as ``find_nginx`` returns it.
        folder: For its files; only one NGINX uses it.
        fallback: The default certificate where the cluster has none; None: a self-signed one.
        resolvers: DNS servers for names of ExternalName services; None: those of the machine.
    """

    dynamic = False

    def __init__(
        self, binary: NginxBinary, folder: Path, *, fallback: Certificate | None = None, resolvers: Sequence[str] | None = None
    ) -> None:
        # Lua's modules make an SSL context for each location.
        plain = replace(binary, modules=())
        self.process = NginxProcess(plain, folder)
        self.renderer = StaticRenderer(plain, fallback or self_signed_certificate(), system_resolvers() if resolvers is None else resolvers)
        #: Why a server answers 503 only.
        self.excluded: dict[ServerKey, str] = {}
        self._shutdown_seconds = 240.0
        #: Changes that were rendered, but did not reach NGINX.
        self._failed = False
        #: Changes that wait for a reload.
        self._deferred = Changes()

    async def serves_http2_beside_http1(self) -> bool:
        return self.process.binary.http2_directive

    async def start(self, configuration: Configuration) -> None:
        """Start NGINX with this configuration. Raises NginxError."""
        await self._install(configuration, None, first=True)

    async def apply(self, configuration: Configuration, changes: Changes, *, may_reload: bool = True) -> ApplyResult:
        """Bring NGINX from the last applied configuration to this one. See ``NginxServer``."""
        self._deferred.merge(changes)
        due = self._deferred
        if not due and not self._failed:
            return ApplyResult(reloaded=False)
        if not may_reload:
            return ApplyResult(reloaded=False, deferred=_reason(due))
        for key in due.servers & self.excluded.keys():
            del self.excluded[key]
        self._deferred = Changes()
        await self._install(configuration, None if self._failed else due, first=False)
        return ApplyResult(reloaded=True, reason=_reason(due))

    async def healthy(self) -> None:
        """Raise NginxError if the process does not answer."""
        await self.process.healthy()

    async def stop(self) -> None:
        """Finish requests in progress, for at most ``settings.shutdown_seconds``, then end the process."""
        await self.process.stop(self._shutdown_seconds)

    async def _install(self, configuration: Configuration, changes: Changes | None, *, first: bool) -> None:
        self._failed = True
        deliver = self.process.start if first else self.process.apply
        while True:
            self.renderer.excluded = set(self.excluded)
            rendered = self.renderer.render(configuration, changes)
            try:
                await deliver(rendered.text, rendered.files)
            except ConfigurationRefused as refusal:
                guilty = _guilty(rendered, str(refusal)) - self.excluded.keys()
                if not guilty or len(self.excluded) + len(guilty) > MOST_EXCLUSIONS:
                    raise
                for key in guilty:
                    _logger.error("host %s answers 503: %s", key[1], refusal)  # noqa: TRY400
                    self.excluded[key] = str(refusal)
                changes = Changes(servers=guilty)
                await asyncio.sleep(0)
            else:
                break
        self._failed = False
        self._shutdown_seconds = configuration.settings.shutdown_seconds


def _guilty(rendered: RenderedConfiguration, message: str) -> set[ServerKey]:
    """Return the servers that need the line that NGINX refuses."""
    match = re.search(r"candidate\.conf:(\d+)", message)
    return rendered.owners_of_line(int(match.group(1))) if match else set()


def _reason(changes: Changes) -> str:
    counts = (("server", len(changes.servers)), ("backend", len(changes.backends)), ("certificate", len(changes.certificates)))
    found = [f"{count} {word}{'s' * (count > 1)}" for word, count in counts if count]
    return ", ".join([*found, *(["settings"] if changes.settings else [])]) + " changed"
