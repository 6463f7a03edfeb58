"""A Secret of webhook certificates that is deleted before it is listed for the first time."""

from __future__ import annotations

import asyncio

from kubeloop.api.core.v1 import Namespace, Secret
from kubeloop.controller.webhooks import ManagedCertificates
from kubeloop.controller.webhooks.tls import ServingCertificate
from kubeloop.meta import ObjectMeta
from kubeloop.testing import HandlerServer
from kubeloop.timing import SystemClock


async def test_a_secret_that_is_deleted_before_the_first_list_is_recreated() -> None:
    async with HandlerServer() as server:
        client = server.client("hooks")
        await client.create(Namespace(metadata=ObjectMeta(name="hooks")))
        certificates = ManagedCertificates("hooks", "hooks", ["hooks.hooks.svc"])
        before = await certificates.open(client, SystemClock())
        renewed: asyncio.Future[ServingCertificate] = asyncio.get_running_loop().create_future()
        release = server.faults.hold(matching=lambda request: request.path == "/api/v1/namespaces/hooks/secrets")
        watching = asyncio.create_task(certificates.watch(renewed.set_result))
        try:
            async with asyncio.timeout(10):
                while sum(call.verb == "get" for call in server.faults.calls) < 2:
                    await asyncio.sleep(0)  # until the first round has seen the Secret
                await client.delete(Secret, "hooks")
                release()
                assert await renewed != before
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
