"""A server with the kind Foo and what a case put there, and the controller connected to it: caches full, nothing reconciled yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import yaml

from examples.sample_controller.controller import NAME, FooController, render
from examples.sample_controller.steps import MANIFESTS
from examples.sample_controller.types import Foo, FooSpec
from kubeloop import Client, InformerFactory, ObjectMeta
from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import Event
from kubeloop.client import ALL_NAMESPACES
from kubeloop.controller import RunnableContext
from kubeloop.controller.runner.runner import Runner
from kubeloop.meta import Unstructured
from kubeloop.testing import Actions, HandlerServer, eventually, many
from kubeloop.testing.fake_time import with_fake_time
from kubeloop.timing import FakeClock


def foo(name: str = "test", *, replicas: int | None = 1, deployment: str = "test-deployment", namespace: str = "default") -> Foo:
    return Foo(metadata=ObjectMeta(name=name, namespace=namespace), spec=FooSpec(deployment_name=deployment, replicas=replicas))


@dataclass
class Stage:
    """``client`` is the test's; ``actions``: what the controller wrote, events aside."""

    server: HandlerServer
    client: Client
    clock: FakeClock
    actions: Actions

    async def create(self, foo: Foo) -> Foo:
        return await self.client.create(foo)

    async def deployment(self, owner: Foo, *, replicas: int | None = None, available: int | None = None) -> Deployment:
        """The Deployment of that Foo, as an earlier reconcile left it."""
        rendered = render(owner)
        if replicas is not None:
            rendered.spec.replicas = replicas
        made = await self.client.create(rendered)
        if available is not None:
            made.status.replicas = made.status.ready_replicas = made.status.available_replicas = available
            made = await self.client.update_status(made)
        return made

    @asynccontextmanager
    async def connected(self, controller: FooController) -> AsyncIterator[FooController]:
        """The controller with synced caches and without workers: a test calls ``reconcile`` itself, once."""
        client = self.server.client(user=NAME)
        informers = InformerFactory(client, clock=self.clock)
        runner = Runner(controller)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(runner.close)
            await runner.connect(RunnableContext(client, informers, self.clock))
            await stack.enter_async_context(informers)
            await informers.wait_synced()
            await runner.synced(60)
            yield controller

    async def reconcile(self, controller: FooController, name: str = "test") -> None:
        """One reconcile of the Foo as the cache shows it."""
        async with self.connected(controller):
            found = controller.lister(Foo).get(name, "default")
            assert found is not None
            await controller.reconcile(found)

    async def events(self) -> list[tuple[str, str, str]]:
        """Type, reason and message of each."""
        return [
            (each.type or "", each.reason or "", each.message or "") async for each in self.client.list(Event, namespace=ALL_NAMESPACES)
        ]

    async def recorded(self, number: int = 1) -> list[tuple[str, str, str]]:
        """As ``events``, when there are so many."""
        await eventually(many(self.client, Event), lambda events: len(events) >= number)
        return await self.events()


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    clock = FakeClock()
    async with HandlerServer(clock=clock) as server:
        client = server.client()
        await install(client, clock)
        yield Stage(server, client, clock, Actions(server.faults, clock).select(user=NAME).without(Event))


async def install(client: Client, clock: FakeClock) -> None:
    """Have the kind Foo served, as the manifest says."""
    manifest = yaml.safe_load((MANIFESTS / "crd-status-subresource.yaml").read_text())
    definition = await client.create(Unstructured.from_dict(manifest))
    await with_fake_time(client.wait_ready(CustomResourceDefinition, definition.metadata.name, timeout=30), clock)
