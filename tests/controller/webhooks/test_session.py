"""A temporary registration: its end, or the next start after a crash, leaves API servers as they were before."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kubeloop.api.admissionregistration.v1 import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.client import Client
from kubeloop.controller.webhooks import Register, Url, Webhooks, WebhookServer
from kubeloop.controller.webhooks.certificates.managed import OwnCertificate
from kubeloop.controller.webhooks.registration import Registrar, registered
from kubeloop.controller.webhooks.session import BEFORE, SESSION, end_session
from kubeloop.meta import Model, NotFound, Resource, Unstructured, custom_resource

pytestmark = pytest.mark.server

# Others may have foos too.
GROUP = f"session{uuid.uuid4().hex[:8]}.example.com"
PLURAL = f"foos.{GROUP}"


class FooSpec(Model):
    size: int | None = None


@custom_resource(f"{GROUP}/v1", plural="foos")
class Foo(Resource):
    spec: FooSpec = msgspec.field(default_factory=FooSpec)


@custom_resource(f"{GROUP}/v2", plural="foos", kind="Foo")
class FooV2(Resource):
    spec: FooSpec = msgspec.field(default_factory=FooSpec)


def all_hooks() -> Webhooks:
    hooks = Webhooks()

    @hooks.mutating(Foo)
    def default(foo: Foo) -> None:
        foo.spec.size = foo.spec.size or 1

    @hooks.validating(Foo)
    def validate(foo: Foo) -> None: ...

    @hooks.conversion(Foo, FooV2)
    def up(foo: Foo) -> FooV2:
        return FooV2(spec=foo.spec)

    @hooks.conversion(FooV2, Foo)
    def down(foo: FooV2) -> Foo:
        return Foo(spec=foo.spec)

    return hooks


def one_hook() -> Webhooks:
    hooks = Webhooks()

    @hooks.validating(Foo)
    def validate(foo: Foo) -> None: ...

    return hooks


@pytest.fixture
async def definition(client: Client) -> AsyncIterator[dict[str, Any]]:
    """The definition of foos, with labels and annotations of another writer."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    document = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": PLURAL, "labels": {"team": "shop"}, "annotations": {"note": "mine"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo"},
            "versions": [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")],
        },
    }
    await client.create(Unstructured.from_dict(document))
    await client.wait_ready(CustomResourceDefinition, PLURAL, timeout=30)
    yield document
    await client.delete(CustomResourceDefinition, PLURAL)
    await client.wait_gone(CustomResourceDefinition, PLURAL, timeout=30)


def server_of(client: Client, hooks: Webhooks, register: Register) -> WebhookServer:
    certificate = OwnCertificate(["127.0.0.1"])
    return WebhookServer(hooks, certificate, client=client, port=0, register=register, registry=CollectorRegistry())


async def registrations(client: Client, name: str) -> list[str]:
    """What of the registration is there."""
    found = []
    for kind in (MutatingWebhookConfiguration, ValidatingWebhookConfiguration):
        try:
            found.append((await client.get(kind, name)).kind)
        except NotFound:
            continue
    conversion = (await client.get(CustomResourceDefinition, PLURAL)).spec.conversion
    return [*found, *(["conversion"] if conversion is not None and conversion.strategy == "Webhook" else [])]


EVERYTHING = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "conversion"]


@pytest.mark.usefixtures("definition")
async def test_the_end_of_the_server_takes_everything_back(client: Client, namespace: str) -> None:
    async with server_of(client, all_hooks(), Register(namespace)):
        assert await registrations(client, namespace) == EVERYTHING
        assert (await client.get(CustomResourceDefinition, PLURAL)).metadata.labels == {"team": "shop", SESSION: namespace}
    assert await registrations(client, namespace) == []
    found = await client.get(CustomResourceDefinition, PLURAL)
    assert (found.metadata.labels, found.metadata.annotations) == ({"team": "shop"}, {"note": "mine"})


async def leave_behind(client: Client, name: str) -> None:
    """What a process leaves that was killed: all that it registered, for an address where nothing listens any more."""
    targets = registered(all_hooks(), name, Url("https://127.0.0.1:1"), temporary=True)
    await Registrar(client, client.clock, targets, b"").apply()


@pytest.mark.usefixtures("definition")
async def test_the_next_start_after_a_crash_takes_back_what_it_does_not_register(client: Client, namespace: str) -> None:
    await leave_behind(client, namespace)
    assert await registrations(client, namespace) == EVERYTHING
    async with server_of(client, one_hook(), Register(namespace)):
        assert await registrations(client, namespace) == ["ValidatingWebhookConfiguration"]
    assert await registrations(client, namespace) == []


@pytest.mark.usefixtures("definition")
async def test_a_session_that_crashed_is_ended_by_its_name_only(client: Client, namespace: str) -> None:
    await leave_behind(client, namespace)
    assert await end_session(client, f"{namespace}-other") == []
    assert await end_session(client, namespace) == [
        f"ValidatingWebhookConfiguration {namespace}",
        f"MutatingWebhookConfiguration {namespace}",
        f"the conversion of {PLURAL}",
    ]
    assert BEFORE not in (await client.get(CustomResourceDefinition, PLURAL)).metadata.annotations
    assert await end_session(client, namespace) == []


@pytest.mark.usefixtures("definition")
async def test_a_registration_that_is_not_temporary_stays(client: Client, namespace: str) -> None:
    try:
        async with server_of(client, one_hook(), Register(namespace, temporary=False)):
            pass
        assert await registrations(client, namespace) == ["ValidatingWebhookConfiguration"]
    finally:
        await client.delete(ValidatingWebhookConfiguration, namespace)
