"""The program as a process, with the rights of its manifests: NGINX serves, and the API server asks the webhook over TLS."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from examples.ingress_nginx.nginx.binary import wheel_nginx
from examples.ingress_nginx.tests.nginx_stage import EchoBackend, echo_backends, free_port, request
from examples.ingress_nginx.tests.objects import ingress, service, slice_of
from kubeloop.api.core.v1 import Namespace
from kubeloop.meta import ApiError, ObjectMeta
from kubeloop.testing import LocalCluster
from tests.kubectl.runner import Kubectl

CONFIG = Path(__file__).parents[1] / "config"
NAME = "kubeloop-ingress"


@asynccontextmanager
async def program(kubectl: Kubectl, folder: Path, *words: str) -> AsyncIterator[Callable[[], str]]:
    """Run the program with the token of its service account, and provide its log."""
    kubeconfig = folder / "kubeconfig"
    shutil.copy(kubectl.kubeconfig, kubeconfig)
    own = Kubectl(kubeconfig, folder, NAME)
    own("config", "set-credentials", "account", f"--token={kubectl('create', 'token', NAME).strip()}")
    own("config", "set-context", "--current", "--user=account", f"--namespace={NAME}")
    command = [sys.executable, "-m", "examples.ingress_nginx", "--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1", *words]
    with (folder / "log").open("w") as log:
        environment = {**os.environ, "POD_NAMESPACE": NAME, "POD_NAME": "pod-1"}
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, env=environment)
    try:
        yield (folder / "log").read_text
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 20)


@pytest.mark.embedded
@pytest.mark.timeout(120)
async def test_the_program_serves_and_its_webhook_decides_with_the_rights_of_the_manifests(tmp_path: Path) -> None:
    ports = {name: free_port() for name in ("http", "https", "webhook", "health")}
    async with LocalCluster(controllers=False, loopback_endpoints=True) as cluster, echo_backends(EchoBackend("web")) as backends:
        client = cluster.client
        kubectl = Kubectl(cluster.kubeconfig, tmp_path, NAME)
        kubectl("apply", "--server-side", "-k", str(CONFIG / "webhooks"))
        await client.create(Namespace(metadata=ObjectMeta(name="shop")))
        for found in (service("web", clusterIP=None), slice_of("web", "127.0.0.1", port=backends["web"].endpoints[0].port)):
            await client.create(found)
        hook = slice_of("kubeloop-ingress-webhooks", "127.0.0.1", port=ports["webhook"])
        hook.metadata.namespace, hook.ports[0].name = NAME, "webhooks"
        await client.create(hook)

        words = [f"--{name}-port={ports[name]}" for name in ("http", "https", "webhook")]
        words += [
            "--health",
            f"127.0.0.1:{ports['health']}",
            "--no-lua",
            "--nginx",
            wheel_nginx() or "",
            "--publish-status-address",
            "192.0.2.1",
        ]
        async with program(kubectl, tmp_path, *words) as log:

            async def decision(name: str, *rules: str) -> str:
                try:
                    await client.create(ingress(name, *rules))
                except ApiError as error:
                    return str(error)
                return "created"

            async def until(probe: Callable[[], Awaitable[object]], expected: str) -> None:
                try:
                    async with asyncio.timeout(60):
                        while expected not in (seen := str(await probe())):  # noqa: ASYNC110 - the program is another process
                            await asyncio.sleep(0.1)
                except TimeoutError:
                    pytest.fail(f"wanted {expected!r}, got {seen!r}; the program's log: {log()}")

            # Until the webhook has its certificate, failurePolicy: Fail refuses each Ingress.
            await until(lambda: decision("web", "shop.test / web:80"), "created")

            async def answer() -> str:
                try:
                    return str((await request(ports["http"], "shop.test")).status)
                except OSError as error:
                    return str(error)

            await until(answer, "200")
            assert 'host "shop.test" and path "/" is already defined in ingress shop/web' in await decision("rival", "shop.test / web:80")
            assert "denied the request" in await decision("wrong", "other.test /a;b web:80")
            status = "{.status.loadBalancer.ingress[0].ip}"
            await until(lambda: asyncio.to_thread(kubectl, "get", "ingress", "web", "-n", "shop", "-o", f"jsonpath={status}"), "192.0.2.1")
            assert (await request(ports["health"], "127.0.0.1", "/readyz")).status == 200
        assert "forbidden" not in log()
        assert "Traceback" not in log()
