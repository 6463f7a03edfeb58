"""A whole API server behind another: it trusts the first by its certificate, as the first's own ConfigMap tells it to."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubeloop.apiserver.authentication.options import AuthenticationOptions
from kubeloop.apiserver.server import ApiServer, ServerOptions
from kubeloop.pki import CertificateAuthority
from kubeloop.types import JSONObject
from tests.apiserver.aggregation.conftest import API_SERVICES
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.embedded


GROUP = "behind.example.com"
WIDGETS = {
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def server(server_with_controllers: ServerUnderTest) -> ServerUnderTest:
    return server_with_controllers


class Front:
    """Requests to the server in front, as its administrator."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, JSONObject]:
        async with self._session.request(method, path, json=body, headers=headers) as answer:
            try:
                return answer.status, await answer.json()
            except aiohttp.ContentTypeError:
                return answer.status, {"text": await answer.text()}

    async def until(self, path: str, status: int) -> JSONObject:
        async with asyncio.timeout(60):
            while (found := await self("GET", path))[0] != status:
                await asyncio.sleep(0.05)
            return found[1]


@asynccontextmanager
async def behind(front: Front, service: str, namespace: str, folder: Path) -> AsyncIterator[ApiServer]:
    """Another server of the same program, with another kind, registered at the one in front."""
    _, settings = await front("GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
    authority = folder / "proxies.crt"
    authority.write_text(settings["data"]["requestheader-client-ca-file"])
    issuer = CertificateAuthority.create("behind-ca")
    own = issuer.issue("behind", dns_names=(f"{service}.{namespace}.svc",), ip_addresses=("127.0.0.1",), server=True)
    certificate, key = folder / "own.crt", folder / "own.key"
    certificate.write_bytes(own.certificate)
    key.touch(mode=0o600)
    key.write_bytes(own.key)
    options = AuthenticationOptions(proxy_ca=authority, tls_certificate=certificate, tls_key=key)
    api = ApiServer(ServerOptions(authentication=options))
    await api.start()
    try:
        port = int(api.url.rpartition(":")[2])
        services = f"/api/v1/namespaces/{namespace}/services"
        await front("POST", services, {"metadata": {"name": service}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}})
        spec = {
            "group": GROUP,
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 10,
            "caBundle": base64.b64encode(issuer.certificate).decode(),
            "service": {"namespace": namespace, "name": service, "port": port},
        }
        status, made = await front("POST", API_SERVICES, {"metadata": {"name": f"v1.{GROUP}"}, "spec": spec})
        assert status == 201, made
        try:
            yield api
        finally:
            await front("DELETE", f"{API_SERVICES}/v1.{GROUP}")
    finally:
        await api.stop()


async def test_a_server_behind_another_serves_its_kinds_to_the_other_s_users(
    server: ServerUnderTest, namespace: str, tmp_path: Path
) -> None:
    doomed = f"{namespace}-doomed-{os.getpid()}"
    connector = aiohttp.TCPConnector(ssl=server.config.ssl_context(), limit=0)
    async with aiohttp.ClientSession(server.config.server, connector=connector) as session:
        front = Front(session)
        async with behind(front, "behind", namespace, tmp_path) as api:
            status, made = await _ask(api, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WIDGETS)
            assert status == 201, made
            for name in (doomed,):
                assert (await front("POST", "/api/v1/namespaces", {"metadata": {"name": name}}))[0] == 201
                assert (await _ask(api, "POST", "/api/v1/namespaces", {"metadata": {"name": name}}))[0] == 201
            widgets = f"/apis/{GROUP}/v1/namespaces/{doomed}/widgets"
            await front.until(widgets, 200)
            widget = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3}}
            status, made = await front("POST", widgets, widget)
            assert (status, made["spec"]) == (201, {"size": 3}), made
            assert (await _ask(api, "GET", f"{widgets}/w"))[1]["metadata"]["uid"] == made["metadata"]["uid"]

            # Whom the first lets through, the second refuses by its own rules, under the same name.
            rights = {"apiGroups": [GROUP], "resources": ["widgets"], "verbs": ["get"]}
            roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{doomed}"
            await front("POST", f"{roles}/roles", {"metadata": {"name": "r"}, "rules": [rights]})
            subject = {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
            role = {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
            bound = {"metadata": {"name": "r"}, "subjects": [subject], "roleRef": role}
            assert (await front("POST", f"{roles}/rolebindings", bound))[0] == 201
            status, refused = await front("GET", f"{widgets}/w", **{"Impersonate-User": "jane"})
            assert status == 403
            assert refused["message"].startswith(f'widgets.{GROUP} "w" is forbidden: User "jane" cannot get resource "widgets"')

            # A namespace takes with it what others keep in it.
            await _until_discovered(front)
            assert (await front("DELETE", f"/api/v1/namespaces/{doomed}"))[0] == 200
            await front.until(f"/api/v1/namespaces/{doomed}", 404)
            assert (await _ask(api, "GET", f"{widgets}/w"))[0] == 404


async def _until_discovered(front: Front) -> None:
    """Discovery of the backend is read again from time to time: here, when the APIService changes."""
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    patch = {"metadata": {"annotations": {"touched": "yes"}}}
    await front("PATCH", f"{API_SERVICES}/v1.{GROUP}", patch, **{"Content-Type": "application/merge-patch+json"})
    async with asyncio.timeout(60):
        while True:
            _, found = await front("GET", "/apis", Accept=accept)
            versions = [one["versions"] for one in found["items"] if one["metadata"]["name"] == GROUP]
            if versions and versions[0][0].get("resources"):
                return
            await asyncio.sleep(0.05)


async def _ask(api: ApiServer, method: str, path: str, body: Any = None) -> tuple[int, JSONObject]:
    """The server behind, asked directly, as its own administrator."""
    import ssl
    import tempfile

    own = api.administrator()
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder, "pair.pem")
        pair.touch(mode=0o600)
        pair.write_bytes(own.certificate + own.key)
        context.load_cert_chain(pair)
    async with (
        aiohttp.ClientSession(api.url, connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.request(method, path, json=body) as answer,
    ):
        return answer.status, await answer.json()
