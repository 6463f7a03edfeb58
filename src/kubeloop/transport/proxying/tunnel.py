"""A tunnel through an HTTP proxy: CONNECT, with a password if the URL holds one (RFC 9110, section 9.3.6; RFC 7617)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import unquote

from kubeloop.config.proxies import Proxy
from kubeloop.transport.http1 import Wire
from kubeloop.transport.proxying.refused import ProxyRefusedError


def credentials(proxy: Proxy) -> Mapping[str, str]:
    """The header for the proxy; empty if its URL names no user."""
    if not proxy.url.username:
        return {}
    pair = f"{unquote(proxy.url.username)}:{unquote(proxy.url.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


async def ask_for_tunnel(wire: Wire, proxy: Proxy, target: str) -> None:
    """What is written afterwards reaches ``target`` (``HOST:PORT``).

    Raises:
        ProxyRefusedError: it is not opened. ConnectionEndedError, ProtocolError, OSError: no answer.
    """
    lines = [
        f"CONNECT {target} HTTP/1.1",
        f"Host: {target}",
        *(f"{key}: {value}" for key, value in credentials(proxy).items()),
    ]
    status, _ = await wire.exchange("CONNECT", "\r\n".join([*lines, "", ""]).encode("latin-1"), None)
    if 200 <= status < 300:
        return
    way_out = "allow it there, or leave this server out by NO_PROXY"
    if status == 407:
        way_out = f"write user and password into the URL of {proxy.origin}: http://USER:PASSWORD@HOST:PORT"
    raise ProxyRefusedError(f"the proxy {proxy.shown} refused: HTTP status {status} to CONNECT {target}; {way_out}")
