"""The program on both servers, without any other controller: what it makes, two replicas and a killed leader, restarts under churn."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from examples.sample_controller.controller import NAME, render
from examples.sample_controller.steps import MANIFESTS
from examples.sample_controller.tests.conftest import Program, Starter
from examples.sample_controller.types import Foo, FooSpec, FooStatus
from kubeloop import Client, ObjectMeta
from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import Event
from kubeloop.config import Kubeconfig, load_config
from kubeloop.meta import Conflict, Invalid, NotFound, Unstructured
from kubeloop.testing import eventually, many, one
from kubeloop.transport import Transport
from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

#: Seconds; a busy machine takes its time.
LONG = 120.0


@pytest.fixture(scope="module")
def foo_kind(server: ServerUnderTest, kubectl_home: Path) -> Iterator[Kubectl]:
    """The kind Foo is served, and lists of kinds show it."""
    kubectl = Kubectl(server.kubeconfig, kubectl_home)
    kubectl("apply", "-f", str(MANIFESTS / "crd-status-subresource.yaml"))
    kubectl("wait", "--for=condition=Established", "crd/foos.samplecontroller.k8s.io", "--timeout=60s")
    kubectl.wait_published("samplecontroller.k8s.io", "v1alpha1", "foos")
    yield kubectl
    kubectl("delete", "crd", "foos.samplecontroller.k8s.io", "--wait")


@pytest.fixture
async def at(foo_kind: Kubectl, namespace: str) -> AsyncIterator[Client]:
    """A client of a namespace of the test's own, where the kind is served."""
    async with Client(Transport(load_config(foo_kind.kubeconfig)), namespace=namespace) as client:
        yield client
        # Nothing ends namespaces on a bare kube-apiserver, and finalizers that a later program puts on all Foos would keep the kind.
        await client.delete_collection(Foo, namespace=namespace)


def foo(name: str, deployment: str = "", replicas: int | None = 1) -> Foo:
    return Foo(metadata=ObjectMeta(name=name), spec=FooSpec(deployment_name=deployment or name, replicas=replicas))


async def made(at: Client, name: str, replicas: int = 1) -> Deployment:
    """The Deployment of that name, as soon as it has so many replicas."""
    return await eventually(one(at, Deployment, name), lambda obj: obj.spec.replicas == replicas, within=LONG)


async def wait_for_event(at: Client, name: str, reason: str) -> Event:
    """The first event about a Foo for that reason."""

    def about(events: list[Event]) -> list[Event]:
        return [each for each in events if (each.involved_object.name, each.reason) == (name, reason)]

    return about(await eventually(many(at, Event, namespace=at.namespace), lambda events: bool(about(list(events))), within=LONG))[0]


@pytest.mark.timeout(240)
async def test_from_a_foo_to_its_deployment_and_back_again(
    at: Client, kubectl: Kubectl, server: ServerUnderTest, start_controller: Starter, tmp_path: Path
) -> None:
    """With ``-master`` in the original's spelling, which overrides a server that is not there."""
    config = Kubeconfig.read(server.kubeconfig).view(flatten=True, raw=True)
    for cluster in config["clusters"]:
        cluster["cluster"]["server"] = "https://127.0.0.1:1"
    elsewhere = tmp_path / "elsewhere.kubeconfig"
    elsewhere.write_text(yaml.safe_dump(config))
    program = start_controller("-master", server.config.server, kubeconfig=elsewhere)

    kubectl("apply", "-f", str(MANIFESTS / "example-foo.yaml"))
    first = await made(at, "example-foo")
    labels = {"app": "nginx", "controller": "example-foo"}
    assert first.spec.selector.match_labels == first.spec.template.metadata.labels == labels
    assert [(each.name, each.image) for each in first.spec.template.spec.containers] == [("nginx", "nginx:latest")]
    assert [(each.kind, each.name, each.controller) for each in first.metadata.owner_references] == [("Foo", "example-foo", True)]
    assert {each.manager for each in first.metadata.managed_fields if each.subresource == ""} == {NAME}
    await eventually(one(at, Foo, "example-foo"), lambda obj: obj.status.available_replicas is not None, within=LONG)

    await at.patch(Foo, "example-foo", {"spec": {"replicas": 3}})
    await made(at, "example-foo", 3)
    await at.delete(Deployment, "example-foo")
    await eventually(one(at, Deployment, "example-foo"), lambda obj: obj.metadata.uid != first.metadata.uid, within=LONG)

    await wait_for_event(at, "example-foo", "Synced")
    assert re.search(
        r"Normal\s+Synced\s.*sample-controller\s+Foo synced successfully",
        kubectl("describe", "foos.samplecontroller.k8s.io", "example-foo"),
    )

    theirs = render(await at.get(Foo, "example-foo"))
    theirs.metadata.name, theirs.metadata.owner_references = "taken", []
    await at.create(theirs)
    await at.create(foo("late", "taken", 4))
    warning = await wait_for_event(at, "late", "ErrResourceExists")
    assert (warning.type, warning.message) == ("Warning", 'Resource "taken" already exists and is not managed by Foo')
    assert (await at.get(Deployment, "taken")).spec.replicas == theirs.spec.replicas

    program.end()
    said = program.log
    order = ["Starting Foo controller", "Waiting for informer caches to sync", "Starting workers, count=2", "Shutting down workers"]
    assert [line for line in order if line in said] == order
    assert [said.index(line) for line in order] == sorted(said.index(line) for line in order)
    assert f"Successfully synced {at.namespace}/example-foo" in said


def replica(start_controller: Starter, namespace: str) -> Program:
    """One of several, with a Lease of the test's own."""
    times = {"lease-duration": "5", "renew-deadline": "4", "retry-period": "0.5"}
    arguments = [f"--leader-elect-{name}={value}" for name, value in {**times, "resource-namespace": namespace}.items()]
    return start_controller("--leader-elect", *arguments)


@pytest.mark.timeout(240)
async def test_when_the_leader_is_killed_the_other_replica_takes_over(at: Client, namespace: str, start_controller: Starter) -> None:
    first = replica(start_controller, namespace)
    held = await eventually(one(at, Lease, NAME), lambda lease: bool(lease.spec.holder_identity), within=LONG)
    second = replica(start_controller, namespace)
    await at.create(foo("before"))
    await made(at, "before")
    assert "Starting workers" not in second.log

    first.kill()
    await at.create(foo("after"))
    await made(at, "after")
    now = await at.get(Lease, NAME)
    assert now.spec.holder_identity not in ("", held.spec.holder_identity)
    assert now.spec.lease_transitions == (held.spec.lease_transitions or 0) + 1
    assert "Starting workers" in second.log

    second.end()  # gracefully: the next holder need not wait for the lease to run out
    assert not (await at.get(Lease, NAME)).spec.holder_identity


@pytest.mark.timeout(240)
async def test_a_controller_that_is_killed_and_started_again_while_foos_change_makes_all_of_them_right(
    at: Client, start_controller: Starter
) -> None:
    chance = random.Random(7)
    names = [f"foo-{number}" for number in range(8)]
    for name in names:
        await at.create(foo(name))

    async def change() -> None:
        """What people do, without a look at the controller."""
        name = chance.choice(names)
        if chance.random() < 0.7:
            await at.patch(Foo, name, {"spec": {"replicas": chance.randint(1, 10)}})
            return
        with contextlib.suppress(NotFound):
            await at.delete(Deployment, name)

    for number in range(3):
        program = start_controller()
        await at.create(foo(f"round-{number}"))
        await made(at, f"round-{number}")  # so it works now
        last = chance.randrange(3, 12)
        for step in range(15):
            await change()
            if step == last:
                program.kill()
    await at.patch(Foo, names[0], {"spec": {"deploymentName": "renamed"}})  # while no controller runs
    start_controller()
    wanted = {each.spec.deployment_name: each async for each in at.list(Foo, namespace=at.namespace)}

    def right(deployment: Any) -> bool:
        by_name = {each.metadata.name: each for each in deployment}
        return all(
            name in by_name
            and by_name[name].spec.replicas == one.spec.replicas
            and [each.uid for each in by_name[name].metadata.owner_references] == [one.metadata.uid]
            for name, one in wanted.items()
        )

    await eventually(many(at, Deployment, namespace=at.namespace), right, within=LONG)
    await eventually(
        many(at, Foo, namespace=at.namespace),
        lambda objects: all(each.status.available_replicas is not None for each in objects),
        within=LONG,
    )


@pytest.mark.parametrize("variant", ["plain", "apply", "finalizer"])
async def test_the_rights_of_its_manifest_are_enough(
    at: Client, kubectl: Kubectl, start_controller: Starter, tmp_path: Path, variant: str
) -> None:
    """A service account of the test's own, bound to the rights of the manifest and to nothing else."""
    account = f"{at.namespace}-sample"
    manifest = (MANIFESTS / "rbac.yaml").read_text()
    kubectl(
        "apply",
        "-f",
        "-",
        stdin=manifest.replace("namespace: default", f"namespace: {at.namespace}").replace(f"name: {NAME}", f"name: {account}"),
    )
    try:
        token = kubectl("create", "token", account).strip()
        config = Kubeconfig.read(kubectl.kubeconfig).view(flatten=True, raw=True)
        config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
        limited = tmp_path / "limited.kubeconfig"
        limited.write_text(yaml.safe_dump(config))
        limited.chmod(0o600)
        program = start_controller(
            "--variant", variant, "--leader-elect", f"--leader-elect-resource-namespace={at.namespace}", kubeconfig=limited
        )
        await at.create(foo("limited"))
        await made(at, "limited")
        await at.patch(Foo, "limited", {"spec": {"replicas": 2}})
        await made(at, "limited", 2)
        await wait_for_event(at, "limited", "Synced")
        await at.delete(Foo, "limited")
        await eventually(one(at, Foo, "limited"), None, within=LONG)
        program.end()
        assert "orbidden" not in program.log
    finally:
        kubectl("delete", "clusterrole,clusterrolebinding", account)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"replicas": 0}, "spec.replicas in body should be greater than or equal to 1", id="no replicas"),
        pytest.param({"replicas": 11}, "spec.replicas in body should be less than or equal to 10", id="eleven"),
        pytest.param({"replicas": "1"}, 'spec.replicas in body must be of type integer: "string"', id="a number as text"),
        pytest.param({"deploymentName": 1}, 'spec.deploymentName in body must be of type string: "integer"', id="a name that is a number"),
    ],
)
async def test_a_foo_that_its_schema_forbids_is_refused(at: Client, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        await at.create(Unstructured.from_dict({**tree("bad"), "spec": spec}))
    assert message in str(refused.value)


@pytest.mark.parametrize("spec", [None, {}, {"replicas": 10}, {"deploymentName": ""}], ids=str)
async def test_nothing_of_a_foo_is_required(at: Client, spec: dict[str, Any] | None) -> None:
    await at.create(Unstructured.from_dict({**tree("few"), **({} if spec is None else {"spec": spec})}))
    found = await at.get(Foo, "few")
    assert (found.spec.deployment_name, found.status.available_replicas) == ("", None)


async def test_foos_are_applied_by_their_fields_and_a_manager_finds_its_own_again(at: Client) -> None:
    await at.apply(foo("applied", "one", 2), field_manager="alice")
    with pytest.raises(Conflict, match="alice"):
        await at.apply(Foo(metadata=ObjectMeta(name="applied"), spec=FooSpec(replicas=3)), field_manager="bob")
    owned = await at.get_owned(Foo, "applied", field_manager="alice")
    assert (owned.spec.deployment_name, owned.spec.replicas) == ("one", 2)
    owned.spec.replicas = None
    await at.apply(owned, field_manager="alice")
    await at.apply(Foo(metadata=ObjectMeta(name="applied"), spec=FooSpec(replicas=3)), field_manager="bob")
    status = Foo(metadata=ObjectMeta(name="applied"), status=FooStatus(available_replicas=1))
    now = await at.apply(status, field_manager="carol", subresource="status")
    assert (now.spec.deployment_name, now.spec.replicas, now.status.available_replicas) == ("one", 3, 1)
    assert {(each.manager, each.subresource) for each in now.metadata.managed_fields} == {("alice", ""), ("bob", ""), ("carol", "status")}


def tree(name: str) -> dict[str, Any]:
    return {"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": name}}
