"""A real NGINX with Lua, without the controller."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path

from examples.ingress_nginx.model.configuration import Certificate, changes_between
from examples.ingress_nginx.nginx.lua_server import LuaNginx
from examples.ingress_nginx.tests.nginx_stage import Stage


class LuaStage(Stage):
    """A stage whose NGINX has Lua."""

    nginx: LuaNginx

    def workers(self) -> list[int]:
        """Return the process ids of NGINX's workers."""
        master = self.nginx.process.pid
        return sorted(int(pid) for pid in Path(f"/proc/{master}/task/{master}/children").read_text().split())

    async def change_certificates(self, *certificates: Certificate) -> None:
        """Replace certificates, by name."""
        new = replace(self.configuration, certificates={found.name: found for found in certificates})
        applied = await self.nginx.apply(new, changes_between(self.configuration, new))
        assert not applied.reloaded, applied.reason
        self.configuration = new

    async def certificate_for(self, host: str) -> bytes:
        """Return the certificate that a client gets for a name."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", self.tls_port, ssl=context, server_hostname=host)
        found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
        assert found
        return found
