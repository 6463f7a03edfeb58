"""A proxy over real TLS in front of an embedded server, both in the test's event loop, with clients of several users."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubeloop.endpoints.access import AUTHENTICATED, MASTERS, User
from kubeloop.proxy.server import ProxyOptions, ProxyServer
from kubeloop.testing import TlsTestServer
from kubeloop.timing import Clock
from kubeloop.types import JSONObject
from tests.kubectl.runner import Result, kubectl_binary, kubectl_environment
from tests.proxy.rules.rule_texts import text_of

MERGE = "application/merge-patch+json"
TOKENS = {
    "admin-token": User("admin", (MASTERS, AUTHENTICATED), "admin-uid"),
    "dora-token": User("dora", ("devs", AUTHENTICATED), "dora-uid"),
    "otto-token": User("otto", ("ops", AUTHENTICATED), "otto-uid"),
}
ADMIN, DORA, OTTO = User("kubeloop-admin", (MASTERS,)), User("dora", ("devs",)), User("otto", ("ops",))
_NUMBERS = itertools.count()


@dataclass
class HttpReply:
    """A response with its whole body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def tree(self) -> Any:
        return json.loads(self.body)

    @property
    def names(self) -> list[str]:
        """Names of a list's items or of a Table's rows."""
        tree = self.tree
        objects = [row["object"] for row in tree["rows"]] if tree["kind"] == "Table" else tree["items"]
        return [item["metadata"]["name"] for item in objects]


@dataclass
class HttpClient:
    """Requests of one user; ``session`` for streams."""

    session: aiohttp.ClientSession
    token: str = ""

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> HttpReply:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        async with self.session.request(method, path, data=None if data is None else io.BytesIO(data), headers=sent) as reply:
            return HttpReply(reply.status, dict(reply.headers), await reply.read())

    @asynccontextmanager
    async def watch(self, path: str, **headers: str) -> AsyncIterator[AsyncIterator[JSONObject]]:
        """Open a watch; its events."""
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        async with self.session.get(path, headers=headers) as reply:
            assert reply.status == 200, await reply.text()

            async def events() -> AsyncIterator[JSONObject]:
                async for line in reply.content:
                    yield json.loads(line)

            yield events()


@dataclass
class Kubectl:
    """kubectl beside the loop in which its server runs."""

    kubeconfig: Path
    home: Path

    async def run(self, *args: str, stdin: str = "") -> Result:
        process = await self.start(*args)
        async with asyncio.timeout(40):
            out, err = await process.communicate(stdin.encode())
        return Result(process.returncode or 0, out.decode(), err.decode())

    async def __call__(self, *args: str, stdin: str = "") -> str:
        result = await self.run(*args, stdin=stdin)
        assert result.code == 0, f"kubectl {' '.join(args)}: exit {result.code}\n{result.out}{result.err}"
        return result.out

    async def start(self, *args: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        environment = kubectl_environment(self.home, self.kubeconfig)
        return await asyncio.create_subprocess_exec(kubectl_binary(), *args, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)


@dataclass
class Proxied:
    """A proxy and its clients."""

    server: TlsTestServer
    proxy: ProxyServer
    folder: Path
    rules: Path
    opened: AsyncExitStack = field(repr=False)

    async def client(self, user: User | None = None, *, token: str = "") -> HttpClient:
        """Return a client with a certificate for a user, with a token, or anonymous."""
        context = ssl.create_default_context(cadata=self.proxy.authority.decode())
        if user is not None:
            issued = self.proxy.issue(user)
            file = self.folder / f"client-{next(_NUMBERS)}.pem"
            file.write_bytes(issued.certificate + issued.key)
            context.load_cert_chain(file)
        return HttpClient(await self._session(self.proxy.url, context), token)

    async def direct(self) -> HttpClient:
        """Return an administrator's client of the server itself."""
        context = ssl.create_default_context(cadata=self.server.api.authority.decode())
        return HttpClient(await self._session(self.server.url, context), "admin-token")

    async def _session(self, url: str, context: ssl.SSLContext) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        return await self.opened.enter_async_context(aiohttp.ClientSession(url, connector=connector))

    def kubectl(self, user: User | None = None) -> Kubectl:
        file = self.folder / f"kubeconfig-{next(_NUMBERS)}"
        file.write_bytes(self.proxy.kubeconfig(user))
        return Kubectl(file, self.folder / "home")

    def write_rules(self, *rules: JSONObject) -> None:
        self.rules.write_text(text_of(*rules) if rules else "# none\n")


#: Starts a proxy with rules; options are those of ``ProxyOptions``.
StartProxy = Callable[..., AbstractAsyncContextManager[Proxied]]


@pytest.fixture
async def upstream() -> AsyncIterator[TlsTestServer]:
    async with TlsTestServer(tokens=TOKENS) as server:
        yield server


@pytest.fixture
def start_proxy(upstream: TlsTestServer, tmp_path: Path) -> StartProxy:
    @asynccontextmanager
    async def start(*rules: JSONObject, clock: Clock | None = None, **options: Any) -> AsyncIterator[Proxied]:
        folder = tmp_path / f"proxy-{next(_NUMBERS)}"
        (folder / "home").mkdir(parents=True)
        file = folder / "rules.yaml"
        if rules:
            file.write_text(text_of(*rules))
        async with AsyncExitStack() as opened:
            settings = ProxyOptions(rules=file if rules else None, **options)
            proxy = await opened.enter_async_context(ProxyServer(upstream.config, settings, clock=clock))
            yield Proxied(upstream, proxy, folder, file, opened)

    return start


@pytest.fixture
async def shop(upstream: TlsTestServer) -> None:
    """Pods front-0, front-1 and back-0, and a Deployment hidden-web and web, in the namespace shop, in which devs and ops may do all."""
    async with aiohttp.ClientSession() as session:
        context = ssl.create_default_context(cadata=upstream.api.authority.decode())

        async def post(path: str, body: JSONObject) -> None:
            headers = {"Authorization": "Bearer admin-token"}
            async with session.post(upstream.url + path, json=body, headers=headers, ssl=context) as reply:
                assert reply.status == 201, await reply.text()

        await post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        for group in ("devs", "ops"):
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}
            binding = {"metadata": {"name": group}, "roleRef": role, "subjects": [subject]}
            await post("/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings", binding)
        for name, tier in (("front-0", "front"), ("back-0", "back"), ("front-1", "front")):
            await post("/api/v1/namespaces/shop/pods", pod_of(name, tier))
        for name, tier in (("web", "front"), ("db", "back")):
            template = {"metadata": {"labels": {"app": name}}, "spec": pod_of(name, tier)["spec"]}
            spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
            await post("/apis/apps/v1/namespaces/shop/deployments", {"metadata": {"name": name, "labels": {"tier": tier}}, "spec": spec})


def pod_of(name: str, tier: str = "front") -> JSONObject:
    return {
        "metadata": {"name": name, "labels": {"tier": tier}, "annotations": {"note": "original"}},
        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
    }
