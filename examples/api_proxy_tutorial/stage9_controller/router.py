"""``python -m examples.api_proxy_tutorial.stage9_controller.router``: a server at 127.0.0.9:8080, to which the rules lead the endpoints."""

from __future__ import annotations

import asyncio

import kubeloop

_BODY = b"hello from the router\n"
_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(_BODY), _BODY)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(_RESPONSE)
    await writer.drain()
    writer.close()


async def main() -> None:
    async with await asyncio.start_server(answer, "127.0.0.9", 8080) as server:
        print("router at 127.0.0.9:8080", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    kubeloop.run(main())
