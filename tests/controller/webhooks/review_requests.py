"""Asks a webhook server as an API server does: one POST over TLS, on its own connection."""

from __future__ import annotations

import asyncio
import ssl


async def http(
    url: str,
    path: str,
    body: bytes = b"",
    *,
    ca: bytes,
    method: str = "POST",
    content_type: str = "application/json",
    client: tuple[str, str] | None = None,
    length: int | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """Status, header fields in lower case, body. ``client``: certificate file and key file to show.

    ``length``: what the head says of the body instead of the truth; the rest is never sent.
    """
    host, _, port = url.removeprefix("https://").rpartition(":")
    context = ssl.create_default_context(cadata=ca.decode())
    if client is not None:
        context.load_cert_chain(*client)
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        announced = len(body) if length is None else length
        fields = [
            f"{method} {path} HTTP/1.1",
            f"Host: {host}",
            "Connection: close",
            f"Content-Length: {announced}",
        ]
        if content_type:
            fields.append(f"Content-Type: {content_type}")
        writer.write("\r\n".join([*fields, "", ""]).encode() + body)
        await writer.drain()
        answer = await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
    if not answer:
        raise ConnectionResetError("the server ended the connection without an answer")
    head, _, rest = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(first.split(" ")[1]), headers, rest


async def shown(url: str, *authorities: bytes) -> bytes:
    """The certificate that a new connection gets, in DER; verified by the given authorities."""
    host, _, port = url.removeprefix("https://").rpartition(":")
    context = ssl.create_default_context(cadata=b"".join(authorities).decode())
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(found, bytes)
        return found
    finally:
        writer.close()
        await writer.wait_closed()
        del reader
