"""Severs the wire between a client and a server, without a reset: what K154 is about. Run in a network namespace, as root of it:

``unshare --map-root-user --net python -m tests.transport.severed 45`` takes the client's own figures; 3 takes shorter ones for the test.
The server is in a second namespace, at the other end of a pair of virtual interfaces. While its end is down, sent data is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import subprocess
import sys
import time
from pathlib import Path

from kubeloop.config import ClusterConfig
from kubeloop.http1 import dial
from kubeloop.transport import Transport

CLIENT, SERVER, PORT = "10.254.0.1", "10.254.0.2", 8080
_ESTABLISHED = "01"
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@functools.cache
def reason_without_namespaces() -> str:
    """Why this system cannot sever a wire; empty where it can."""
    probe = ["unshare", "--map-root-user", "--net", "ip", "link", "add", "name", "here", "type", "veth", "peer", "name", "there"]
    try:
        ended = subprocess.run(probe, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        return "unshare (util-linux) is not installed"
    return "" if ended.returncode == 0 else f"no network namespace with a pair of interfaces: {ended.stderr.strip()}"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


async def serve() -> None:
    """Answer every request but the first for /held; take the words up and down from standard input."""
    held = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal held
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET /held"):
                    held += 1
                    if held == 1:
                        print("held", flush=True)
                        await asyncio.Event().wait()
                writer.write(_ANSWER)
        writer.close()

    for word in iter(sys.stdin.readline, ""):
        ip("link", "set", "there", word.strip())
        if word.strip() == "up":
            break
    ip("address", "add", f"{SERVER}/24", "dev", "there")
    server = await asyncio.start_server(answer, SERVER, PORT)
    print("serving", flush=True)
    while word := await asyncio.to_thread(sys.stdin.readline):
        ip("link", "set", "there", word.strip())
        print(word.strip(), flush=True)
    server.close()


def established() -> int:
    """How many connections to the server the kernel still believes in."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(fields[3] == _ESTABLISHED and fields[2].endswith(f":{PORT:04X}") for fields in lines)


async def sever(name: str, server: subprocess.Popen[str], seconds: float, *, written: bool) -> None:
    assert server.stdin is not None
    assert server.stdout is not None

    def tell(word: str) -> None:
        print(word, file=server.stdin, flush=True)
        assert server.stdout is not None
        assert server.stdout.readline().strip() == word

    async with Transport(ClusterConfig(name=name, server=f"http://{SERVER}:{PORT}")) as transport:
        if written:
            await transport.request("GET", "/x")
            tell("down")
            asking = asyncio.ensure_future(transport.request("GET", "/x"))
        else:
            asking = asyncio.ensure_future(transport.request("GET", "/held"))
            assert (await asyncio.to_thread(server.stdout.readline)).strip() == "held"
            tell("down")
        severed = time.monotonic()
        assert established() == 1
        while established():
            await asyncio.sleep(0.02)
            assert time.monotonic() - severed < seconds + 10, "the broken connection is not found"
        assert not asking.done()
        tell("up")
        assert (await asyncio.wait_for(asking, 20)).body == b"{}"
    print(f"{name}: found", flush=True)


async def main(seconds: int) -> None:
    if seconds != 45:
        dial.LIVENESS.update(TCP_KEEPIDLE=1, TCP_KEEPINTVL=1, TCP_KEEPCNT=2, TCP_USER_TIMEOUT=seconds * 1000)
    command = ["unshare", "--net", sys.executable, "-m", "tests.transport.severed", "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            own = Path("/proc/self/ns/net").readlink()
            while Path(f"/proc/{server.pid}/ns/net").readlink() == own:
                await asyncio.sleep(0.01)
            ip("link", "add", "name", "here", "type", "veth", "peer", "name", "there")
            ip("link", "set", "there", "netns", str(server.pid))
            ip("address", "add", f"{CLIENT}/24", "dev", "here")
            ip("link", "set", "here", "up")
            print("up", file=server.stdin, flush=True)
            assert server.stdout.readline().strip() == "serving"
            await sever("idle", server, seconds, written=False)
            await sever("written", server, seconds, written=True)
        finally:
            server.kill()


if __name__ == "__main__":
    asyncio.run(serve() if sys.argv[1] == "serve" else main(int(sys.argv[1])))
