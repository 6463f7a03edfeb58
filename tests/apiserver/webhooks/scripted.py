"""A webhook that does what a test says: an HTTPS server on loopback with a separate authority, which keeps its requests."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from kubeloop.pki import CertificateAuthority
from kubeloop.types import JSONObject
from tests.http_servers import https_server


@dataclass
class Raw:
    """An answer as it stands; ``delay`` seconds are waited for before."""

    body: bytes = b""
    status: int = 200
    delay: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)


#: What a path answers: a whole review, or something raw.
Script = Callable[[JSONObject], JSONObject | Raw]


@dataclass
class Hook:
    """``seen`` are the reviews asked for, by path; ``scripts`` what answers them (404 without one)."""

    port: int
    ca: bytes
    scripts: dict[str, Script] = field(default_factory=dict)
    seen: dict[str, list[JSONObject]] = field(default_factory=dict)
    queries: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    #: Connections seen so far, by the client's port.
    _peers: dict[int, web.BaseRequest] = field(default_factory=dict)

    @property
    def connections(self) -> int:
        return len(self._peers)

    async def drop_connections(self) -> None:
        """Close all connections, as a server does after a long idle time."""
        for request in self._peers.values():
            if request.transport is not None:
                request.transport.close()
        await asyncio.sleep(0.02)

    def client_config(self, path: str) -> JSONObject:
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": base64.b64encode(self.ca).decode()}

    def on(self, path: str, script: Script) -> JSONObject:
        """The clientConfig of a path that answers as ``script`` says."""
        self.scripts[path] = script
        return self.client_config(path)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        review = json.loads(await request.read())
        if request.transport is not None:
            self._peers[request.transport.get_extra_info("peername")[1]] = request
        self.seen.setdefault(request.path, []).append(copy.deepcopy(review))
        self.queries.append(request.query_string)
        self.headers.append(dict(request.headers))
        script = self.scripts.get(request.path)
        made = Raw(b"nothing here", 404) if script is None else script(review)
        if isinstance(made, Raw):
            if made.delay:
                await asyncio.sleep(made.delay)
            return web.Response(body=made.body, status=made.status, headers=made.headers)
        return web.json_response(made)


def respond(review: JSONObject, **response: Any) -> JSONObject:
    """A review with its answer."""
    given = {"uid": review["request"]["uid"], **response}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": given}


def allow(**response: Any) -> Script:
    return lambda review: respond(review, allowed=True, **response)


def deny(**result: Any) -> Script:
    return lambda review: respond(review, allowed=False, **({"status": result} if result else {}))


def patch(*operations: JSONObject, **response: Any) -> Script:
    """Allow, with a JSON patch."""
    text = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda review: respond(review, allowed=True, patch=text, patchType="JSONPatch", **response)


@asynccontextmanager
async def scripted_hook(names: tuple[str, ...] = (), *, ip: str = "127.0.0.1", days: int = 365) -> AsyncIterator[Hook]:
    """Listens until the block ends. ``names`` stand in its certificate beside ``ip``."""
    authority = CertificateAuthority.create("scripted hook")
    own = authority.issue("hook", dns_names=names, ip_addresses=(ip,), server=True, days=days)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder, "hook.pem")
        chain.touch(mode=0o600)
        chain.write_bytes(own.certificate + own.key)
        context.load_cert_chain(chain)
    hook = Hook(0, authority.certificate)
    async with https_server(hook.answer, context) as hook.port:
        yield hook
