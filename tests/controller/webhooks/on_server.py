"""Webhook servers of a test on the server under test: started, registered, waited for, and taken away again."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from prometheus_client import CollectorRegistry

from kubeloop.api.admissionregistration.v1 import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from kubeloop.client import Client
from kubeloop.controller.webhooks import Lifetimes, ManagedCertificates, Register, Webhooks, WebhookServer
from kubeloop.meta import ApiError, NotFound
from kubeloop.timing import Clock

T = TypeVar("T")

_NUMBERS = itertools.count(1)
_PATIENCE = 30.0


@asynccontextmanager
async def served(
    client: Client, hooks: Webhooks, namespace: str, *, name: str = "", clock: Clock | None = None, lifetimes: Lifetimes | None = None
) -> AsyncIterator[WebhookServer]:
    """A server on loopback whose certificates are in the Secret ``hooks`` of the namespace, registered under ``name``."""
    name = name or f"hooks-{os.getpid()}-{next(_NUMBERS)}"
    certificates = ManagedCertificates("hooks", namespace, ["127.0.0.1"], lifetimes=lifetimes)
    try:
        async with WebhookServer(
            hooks, certificates, client=client, port=0, register=Register(name), registry=CollectorRegistry(), clock=clock
        ) as server:
            yield server
    finally:
        for kind in (MutatingWebhookConfiguration, ValidatingWebhookConfiguration):
            with suppress(NotFound):
                await client.delete(kind, name)


async def until(ask: Callable[[], Awaitable[T | None]]) -> T:
    """What ``ask`` says once it says anything; a refusal is asked again. For what a server does in its own time."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            with suppress(ApiError):
                found = await ask()
                if found:
                    return found
            await asyncio.sleep(0.02)
