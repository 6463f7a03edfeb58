"""An extension API server that does what a test says: HTTPS on loopback, one kind (Widget), and a record of its requests."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from kubeloop.pki import CertificateAuthority
from kubeloop.types import JSONObject
from tests.http_servers import https_server

Script = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True)
class RecordedRequest:
    """``subject`` is the common name of the client certificate that was shown; empty without one."""

    method: str
    path: str
    query: str
    headers: dict[str, list[str]]
    subject: str

    def values(self, name: str) -> list[str]:
        return self.headers.get(name.lower(), [])


@dataclass
class Extension:
    """``scripts`` answer paths; ``healthy`` False: discovery is answered with 500; ``legacy``: there is no aggregated discovery."""

    group: str
    version: str = "v1"
    port: int = 0
    ca: bytes = b""
    healthy: bool = True
    legacy: bool = False
    scripts: dict[str, Script] = field(default_factory=dict)
    requests: list[RecordedRequest] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/apis/{self.group}/{self.version}"

    @property
    def bundle(self) -> str:
        return base64.b64encode(self.ca).decode()

    def seen(self, path: str) -> list[RecordedRequest]:
        return [one for one in self.requests if one.path == path]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(_recorded(request))
        script = self.scripts.get(request.path)
        if script is not None:
            return await script(request)
        if request.path in ("/apis", self.path) and not self.healthy:
            return web.Response(status=500, text="unwell")
        if request.path == "/apis" and not self.legacy and "APIGroupDiscoveryList" in request.headers.get("Accept", ""):
            return web.Response(body=json.dumps(self.aggregated()).encode(), headers={"Content-Type": _AGGREGATED})
        if request.path == self.path:
            return web.json_response(self.resources())
        if request.path == "/openapi/v3":
            return web.json_response({"paths": {self.path[1:]: {"serverRelativeURL": f"/openapi/v3{self.path}?hash=AB"}}})
        if request.path == f"/openapi/v3{self.path}":
            return web.json_response({"openapi": "3.0.0", "info": {"title": "extension", "version": "1"}, "paths": {}})
        if request.path == "/openapi/v2":
            return web.json_response(self.swagger())
        return web.json_response({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}, status=404)

    def aggregated(self) -> JSONObject:
        resource = {
            "resource": "widgets",
            "responseKind": {"group": self.group, "version": self.version, "kind": "Widget"},
            "scope": "Namespaced",
            "singularResource": "widget",
            "verbs": ["create", "get", "list", "watch"],
            "shortNames": ["wi"],
        }
        version = {"version": self.version, "resources": [resource], "freshness": "Current"}
        group = {"metadata": {"name": self.group, "creationTimestamp": None}, "versions": [version]}
        return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [group]}

    def resources(self) -> JSONObject:
        widgets = {
            "name": "widgets",
            "singularName": "widget",
            "namespaced": True,
            "kind": "Widget",
            "verbs": ["create", "get", "list", "watch"],
            "shortNames": ["wi"],
        }
        status = {"name": "widgets/status", "singularName": "", "namespaced": True, "kind": "Widget", "verbs": ["get"]}
        found = [widgets, status]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{self.group}/{self.version}", "resources": found}

    def swagger(self) -> JSONObject:
        kind = {"group": self.group, "version": self.version, "kind": "Widget"}
        widget = {"type": "object", "description": "A widget.", "x-kubernetes-group-version-kind": [kind]}
        operation = {
            "operationId": f"list{self.version}Widget",
            "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/com.example.Widget"}}},
        }
        return {
            "swagger": "2.0",
            "info": {"title": "extension", "version": "1"},
            "paths": {f"{self.path}/widgets": {"get": operation}, "/elsewhere": {"get": operation}},
            "definitions": {"com.example.Widget": widget, "com.example.Unused": {"type": "string"}},
        }


def _recorded(request: web.BaseRequest) -> RecordedRequest:
    headers: dict[str, list[str]] = {}
    for name, value in request.headers.items():
        headers.setdefault(name.lower(), []).append(value)
    secured = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
    shown = secured.getpeercert() if secured is not None else None
    subject = next((value for part in (shown or {}).get("subject", ()) for name, value in part if name == "commonName"), "")
    return RecordedRequest(request.method, request.path, request.raw_path.partition("?")[2], headers, subject)


@asynccontextmanager
async def extension_server(group: str, *names: str, clients: bytes = b"", **rest: Any) -> AsyncIterator[Extension]:
    """Listens until the block ends. ``names`` stand in its certificate; ``clients`` is the authority whose certificates it asks for."""
    authority = CertificateAuthority.create("extension-ca")
    own = authority.issue("extension", dns_names=names, server=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.decode())
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder, "own.pem")
        chain.touch(mode=0o600)
        chain.write_bytes(own.certificate + own.key)
        context.load_cert_chain(chain)
    made = Extension(group, ca=authority.certificate, **rest)
    async with https_server(made.answer, context) as made.port:
        yield made


async def streamed(request: web.BaseRequest, parts: asyncio.Queue[bytes | None], gone: asyncio.Event) -> web.StreamResponse:
    """What comes through a queue, as it comes; ``gone`` is set when the client ends first."""
    answer = web.StreamResponse(headers={"Content-Type": "application/json"})
    await answer.prepare(request)
    try:
        while (part := await parts.get()) is not None:
            await answer.write(part)
    except (asyncio.CancelledError, ConnectionError):
        gone.set()
        raise
    return answer
