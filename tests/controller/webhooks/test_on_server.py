"""Hooks in the admission chain of the server under test: asked over TLS, registered and kept registered, used by kubectl."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeloop.api.admissionregistration.v1 import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.autoscaling.v1 import Scale
from kubeloop.api.core.v1 import Pod, Secret
from kubeloop.client import Client, WriteOptions
from kubeloop.codec import decode
from kubeloop.controller import Manager
from kubeloop.controller.webhooks import (
    AdmissionRequest,
    Denied,
    Inject,
    ManagedCertificates,
    Url,
    Warnings,
    Webhooks,
    WebhookServer,
)
from kubeloop.meta import ConfigError, Invalid, LabelSelector, Model, ObjectMeta, Resource, Unstructured, custom_resource
from kubeloop.meta.errors import ApiError, InternalError
from tests.controller.webhooks.on_server import served, until
from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

# Others may have foos too.
GROUP = f"hooks{uuid.uuid4().hex[:8]}.example.com"


class FooSpec(Model):
    size: int | None = None
    names: list[str] = msgspec.field(default_factory=list)


@custom_resource(f"{GROUP}/v1", plural="foos")
class Foo(Resource):
    spec: FooSpec = msgspec.field(default_factory=FooSpec)


class FooSpecV2(Model):
    count: int | None = None


@custom_resource(f"{GROUP}/v2", plural="foos", kind="Foo")
class FooV2(Resource):
    spec: FooSpecV2 = msgspec.field(default_factory=FooSpecV2)


def definition() -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions: list[dict[str, Any]] = [
        {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
        for name in ("v1", "v2")
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"foos.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo"},
            "versions": versions,
        },
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kubectl")


@pytest.fixture
def kubectl(server: ServerUnderTest, namespace: str, home: Path) -> Kubectl:
    return Kubectl(Path(server.kubeconfig), home, namespace)


@pytest.fixture(scope="module")
def published(server: ServerUnderTest, home: Path) -> Iterator[set[str]]:
    """The definitions that were made; taken away at the end."""
    made: set[str] = set()
    yield made
    for name in made:
        Kubectl(Path(server.kubeconfig), home)("delete", "crd", name, "--ignore-not-found", "--wait=false")


@pytest.fixture
async def foos(client: Client, kubectl: Kubectl, published: set[str]) -> Client:
    """The client, when the server serves foos and everybody knows."""
    if not published:
        await client.create(decode(CustomResourceDefinition, json.dumps(definition()).encode()))
        await client.wait_ready(CustomResourceDefinition, f"foos.{GROUP}", timeout=30)
        await asyncio.to_thread(kubectl.wait_published, GROUP, "v1", "foos")
        published.add(f"foos.{GROUP}")
    return client


def foo(name: str, **spec: Any) -> Foo:
    made: Foo = Foo.from_dict({"apiVersion": f"{GROUP}/v1", "kind": "Foo", "metadata": {"name": name}, "spec": spec})
    return made


def hooks_for(namespace: str) -> Webhooks:
    """Foos of the namespace get a size, at most 9, are not deleted while they are 9, and odd ones are warned about."""
    hooks = Webhooks()
    own = LabelSelector(match_labels={"kubernetes.io/metadata.name": namespace})

    @hooks.mutating(Foo, namespace_selector=own)
    async def defaults(foo: Foo, request: AdmissionRequest[Foo]) -> None:
        if foo.spec.size is None:
            foo.spec.size = 1
            foo.metadata.annotations["by"] = request.user.username

    @hooks.validating(Foo, operations=["CREATE", "UPDATE", "DELETE"], namespace_selector=own)
    def check(foo: Foo, request: AdmissionRequest[Foo]) -> Warnings | None:
        size = foo.spec.size or 0
        if request.operation == "DELETE":
            if size == 9:
                raise Denied("a foo of 9 stays")
            return None
        if size > 9:
            raise Denied("at most 9", field="spec.size", value=size)
        if size == 13 - 6:
            raise ValueError("a secret")
        return Warnings(f"{size} is odd") if size % 2 else None

    return hooks


async def in_force(client: Client) -> None:
    """A server learns of a configuration a moment after it is stored."""

    async def both() -> bool:
        made = await client.create(foo("probe"), options=WriteOptions(dry_run=True))
        try:
            await client.create(foo("probe", size=10), options=WriteOptions(dry_run=True))
        except Invalid:
            return made.spec.size == 1
        return False

    await until(both)


async def test_writes_are_defaulted_refused_and_contained(foos: Client, namespace: str) -> None:
    async with served(foos, hooks_for(namespace), namespace):
        await in_force(foos)
        made = await foos.create(foo("a", unknown={"deep": [1, 2.5, None]}, names=["x"]))
        assert made.spec.size == 1
        assert made.metadata.annotations["by"]
        assert made.to_dict()["spec"] == {"size": 1, "names": ["x"], "unknown": {"deep": [1, 2.5, None]}}

        made.spec.size = 10
        with pytest.raises(Invalid) as refused:
            await foos.update(made)
        assert [(cause.field, cause.reason) for cause in refused.value.causes] == [("spec.size", "FieldValueInvalid")]
        assert f'admission webhook "check.foos.{GROUP}" denied the request' in str(refused.value)

        made.spec.size = 7
        with pytest.raises(InternalError) as failed:
            await foos.update(made)
        assert "ValueError (trace " in str(failed.value)
        assert "a secret" not in str(failed.value)

        made.spec.size = 9
        made = await foos.update(made)
        with pytest.raises(ApiError, match="a foo of 9 stays"):
            await foos.delete(Foo, "a")
        made.spec.size = 2
        await foos.update(made)
        await foos.delete(Foo, "a")


async def test_kubectl_shows_refusals_and_warnings(foos: Client, namespace: str, kubectl: Kubectl) -> None:
    async with served(foos, hooks_for(namespace), namespace):
        await in_force(foos)
        tree: dict[str, Any] = {"apiVersion": f"{GROUP}/v1", "kind": "Foo", "metadata": {"name": "k"}, "spec": {"size": 3, "other": 1.0}}
        made = await asyncio.to_thread(kubectl.run, "create", "-f", "-", stdin=json.dumps(tree))
        assert (made.code, made.out) == (0, f"foo.{GROUP}/k created\n")
        # kubectl may say before what it finds of the kinds of other tests.
        assert made.err.endswith("Warning: 3 is odd\n")
        refused = await asyncio.to_thread(kubectl.run, "patch", "foo", "k", "--type=merge", "-p", '{"spec":{"size":11}}')
        assert refused.code == 1
        assert refused.err.endswith('The Foo "k" is invalid: spec.size: Invalid value: 11: at most 9\n')


async def test_subresources_bring_what_they_carry(client: Client, namespace: str, kubectl: Kubectl) -> None:
    hooks = Webhooks()
    own = LabelSelector(match_labels={"kubernetes.io/metadata.name": namespace})
    seen: list[str] = []

    @hooks.validating(Deployment, subresource="scale", body=Scale, operations=["UPDATE"], namespace_selector=own)
    async def scaled(scale: Scale, request: AdmissionRequest[Scale]) -> None:
        assert request.old is not None
        seen.append(f"{request.old.spec.replicas} to {scale.spec.replicas}")
        if scale.spec.replicas > 3:
            raise Denied("at most 3", field="spec.replicas", value=scale.spec.replicas)

    exec_options = Unstructured.for_kind("v1", "PodExecOptions")

    @hooks.validating(Pod, subresource="exec", body=exec_options, operations=["CONNECT"], namespace_selector=own)
    async def entered(options: Unstructured, request: AdmissionRequest[Unstructured]) -> None:
        raise Denied(f"{request.name} is not entered to {' '.join(options['command'])}")

    async with served(client, hooks, namespace):
        await asyncio.to_thread(kubectl, "create", "deployment", "web", "--image=nginx:1", "--replicas=1")
        await asyncio.to_thread(kubectl, "run", "alone", "--image=nginx:1")

        async def asked() -> bool:
            await asyncio.to_thread(kubectl.run, "scale", "deployment", "web", "--replicas=2")
            return bool(seen)

        await until(asked)
        assert seen[-1].endswith(" to 2")
        refused = await asyncio.to_thread(kubectl.run, "scale", "deployment", "web", "--replicas=4")
        assert (refused.code, "spec.replicas: Invalid value: 4: at most 3" in refused.err) == (1, True)
        refused = await asyncio.to_thread(kubectl.run, "exec", "alone", "--", "rm", "-r")
        assert (refused.code, "alone is not entered to rm -r" in refused.err) == (1, True)


async def test_what_was_registered_is_put_right(foos: Client, namespace: str) -> None:
    hooks = hooks_for(namespace)
    name = f"kept-{namespace}"
    async with served(foos, hooks, namespace, name=name) as server:
        wanted = server.serving.authorities

        async def trusted(kind: type[MutatingWebhookConfiguration | ValidatingWebhookConfiguration]) -> bool:
            found = await foos.get(kind, name)
            return [one.client_config.ca_bundle for one in found.webhooks] == [wanted]

        for kind in (MutatingWebhookConfiguration, ValidatingWebhookConfiguration):
            assert await trusted(kind)
            spoiled = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "bm8="}]
            await foos.patch(kind, name, spoiled, type="json")
            await until(lambda kind=kind: trusted(kind))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            await foos.delete(kind, name)
            await until(lambda kind=kind: trusted(kind))  # type: ignore[misc]  # as above
        await in_force(foos)
        server.check()


async def test_bundles_of_what_others_apply_are_filled_in(foos: Client, namespace: str) -> None:
    """As when a Helm chart brings the configurations, with a manager around it."""
    hooks, name = hooks_for(namespace), f"helm-{namespace}"
    certificates = ManagedCertificates("hooks", namespace, ["127.0.0.1"])
    inject = Inject(validating=[name], mutating=[name])
    server = WebhookServer(hooks, certificates, client=foos, port=0, inject=inject)
    async with Manager(foos, servers=[server]):
        for configuration in hooks.configurations(name, Url(server.url)):
            await foos.create(configuration)
        try:
            await in_force(foos)
        finally:
            for kind in (MutatingWebhookConfiguration, ValidatingWebhookConfiguration):
                await foos.delete(kind, name)


async def test_a_secret_of_another_owner_is_not_overwritten(client: Client, namespace: str) -> None:
    await client.create(Secret(metadata=ObjectMeta(name="hooks"), data={"password": b"x"}))
    with pytest.raises(ConfigError, match=r"Secret .*/hooks holds something else than webhook certificates"):
        async with served(client, hooks_for(namespace), namespace):
            raise AssertionError("it must not start")


async def test_an_empty_secret_is_filled(client: Client, namespace: str) -> None:
    """So that a chart may make it, and the program needs no right to create."""
    await client.create(Secret(metadata=ObjectMeta(name="hooks")))
    async with served(client, hooks_for(namespace), namespace) as server:
        found = await client.get(Secret, "hooks")
        assert found.data["tls.crt"] == server.serving.certificate
        assert set(found.data) == {"tls.crt", "tls.key", "ca.crt", "ca.key"}


async def test_objects_are_converted_without_a_loss(foos: Client, namespace: str) -> None:
    hooks = Webhooks()
    v1, v2 = (Unstructured.for_kind(f"{GROUP}/{version}", "Foo", plural="foos") for version in ("v1", "v2"))

    @hooks.conversion(v1, v2)
    def up(foo: Unstructured) -> Any:
        return _renamed(foo, "size", "count")

    @hooks.conversion(v2, v1)
    def down(foo: Unstructured) -> Any:
        return _renamed(foo, "count", "size")

    given = foo("c", size=4, unknown={"deep": [1.5, {}]})
    given.metadata.labels["app"] = "x"
    async with served(foos, hooks, namespace):

        async def converted() -> Foo | None:
            made = await foos.create(given, options=WriteOptions(dry_run=True))
            return made if made.spec.size == 4 else None

        await until(converted)
        made = await foos.create(given)

        async def as_v2() -> FooV2 | None:
            found = await foos.get(FooV2, "c")
            return found if found.spec.count == 4 else None

        newer = await until(as_v2)
        assert newer.metadata.labels == {"app": "x"}
        assert newer.metadata.uid == made.metadata.uid
        newer.spec.count = 5
        await foos.update(newer)
        older = await foos.get(Foo, "c")
        assert older.to_dict()["spec"] == {"size": 5, "unknown": {"deep": [1.5, {}]}}
        await foos.delete(Foo, "c")
    # Afterwards: while it serves, it would be put right.
    await foos.patch(CustomResourceDefinition, f"foos.{GROUP}", {"spec": {"conversion": None}})


def _renamed(foo: Unstructured, old: str, new: str) -> dict[str, Any]:
    tree = foo.to_dict()
    if old in tree["spec"]:
        tree["spec"][new] = tree["spec"].pop(old)
    return tree
