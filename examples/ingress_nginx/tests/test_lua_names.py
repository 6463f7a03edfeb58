"""An NGINX with Lua resolves the DNS names of backends (ExternalName services)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from examples.ingress_nginx.model.configuration import Backend, Endpoint
from examples.ingress_nginx.nginx.binary import find_nginx
from examples.ingress_nginx.nginx.lua_server import LuaNginx
from examples.ingress_nginx.tests.nginx_stage import EchoBackend, echo_backends, prefix, server, stage

pytestmark = pytest.mark.nginx_lua


class NameServer(asyncio.DatagramProtocol):
    """Answers each DNS question for an IPv4 address with 127.0.0.1."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # In Python 3.11 the transport's class is not derived from DatagramTransport.
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        question = data[12 : data.index(b"\0", 12) + 5]
        wanted = question[-4:-2] == b"\0\1"
        answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1" if wanted else b""
        self.transport.sendto(data[:2] + b"\x81\x80\0\1\0" + bytes([wanted]) + b"\0\0\0\0" + question + answer, addr)


async def test_nginx_resolves_the_names_of_backends(tmp_path: Path) -> None:
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    resolver = "127.0.0.1:{}".format(transport.get_extra_info("sockname")[1])
    async with (
        stage(LuaNginx(await find_nginx(), tmp_path / "nginx", resolvers=(resolver,))) as running,
        echo_backends(EchoBackend("web")) as backends,
    ):
        await running.start(server("shop.test", prefix("/", "web")), backends=backends)
        named = Backend("web", (Endpoint("web.example", backends["web"].endpoints[0].port),))
        applied = await running.change(backends={"web": named})
        assert applied.reason == "the first backend with a DNS name"
        assert (await running.get("shop.test", "/x")).seen["target"] == "/x"
        assert not (await running.change(backends={"web": replace(named, endpoints=backends["web"].endpoints)})).reloaded
        assert (await running.get("shop.test", "/x")).status == 200
    transport.close()
