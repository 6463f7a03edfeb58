"""What one reconcile writes, with the objects: the original's tests as a table, and the corners that it leaves out.

Events are looked at by themselves. Reads are from the cache and leave no trace at the server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from examples.sample_controller.controller import FooController, NotManagedError
from examples.sample_controller.tests.stage import Stage, foo, stage
from examples.sample_controller.types import Foo
from kubeloop import ObjectMeta, TerminalError
from kubeloop.api.apps.v1 import Deployment
from kubeloop.meta import Conflict, ServiceUnavailable
from kubeloop.testing import on

pytestmark = pytest.mark.embedded

SYNCED = [("Normal", "Synced", "Foo synced successfully")]
TAKEN = 'Resource "test-deployment" already exists and is not managed by Foo'
Given = Callable[[Stage], Awaitable[Foo]]


async def a_new_foo(on: Stage) -> Foo:
    return await on.create(foo())


async def a_new_foo_without_replicas(on: Stage) -> Foo:
    return await on.create(foo(replicas=None))


async def all_is_well(on: Stage) -> Foo:
    made = await on.create(foo())
    await on.deployment(made)
    return made


async def available(on: Stage) -> Foo:
    made = await on.create(foo(replicas=2))
    await on.deployment(made, available=2)
    return made


async def other_replicas(on: Stage) -> Foo:
    made = await on.create(foo(replicas=2))
    await on.deployment(made, replicas=1)
    return made


async def no_replicas_any_more(on: Stage) -> Foo:
    made = await on.create(foo(replicas=None))
    await on.deployment(made, replicas=4)
    return made


async def another_image(on: Stage) -> Foo:
    made = await on.create(foo())
    drifted = await on.deployment(made)
    drifted.spec.template.spec.containers[0].image = "nginx:other"
    await on.client.update(drifted)
    return made


@pytest.mark.parametrize(
    ("state", "table"),
    [
        pytest.param(
            a_new_foo,
            """
            create  Deployment  default/test-deployment  spec.replicas=1
            update  Foo/status  default/test             status.availableReplicas=0
            """,
            id="a new Foo: its Deployment is created, its status is written",
        ),
        pytest.param(
            a_new_foo_without_replicas,
            """
            create  Deployment  default/test-deployment  spec.replicas=""
            update  Foo/status  default/test             status.availableReplicas=0
            """,
            id="without replicas none are asked for, so that the server's default counts",
        ),
        pytest.param(
            all_is_well,
            "update  Foo/status  default/test  status.availableReplicas=0",
            id="nothing to do: only the status is written",
        ),
        pytest.param(
            available,
            "update  Foo/status  default/test  status.availableReplicas=2",
            id="the status is what the Deployment has available",
        ),
        pytest.param(
            other_replicas,
            """
            update  Deployment  default/test-deployment  spec.replicas=2
            update  Foo/status  default/test             status.availableReplicas=0
            """,
            id="other replicas: the Deployment is replaced, then the status is written",
        ),
        pytest.param(
            no_replicas_any_more,
            "update  Foo/status  default/test  status.availableReplicas=0",
            id="a Foo that no longer says replicas leaves the count as it is",
        ),
        pytest.param(
            another_image,
            "update  Foo/status  default/test  status.availableReplicas=0",
            id="another image alone is not put right",
        ),
    ],
)
async def test_one_reconcile_writes(state: Given, table: str) -> None:
    async with stage() as at:
        await state(at)
        await at.reconcile(FooController())
        at.actions.expect(table)
        assert await at.recorded() == SYNCED


def owner(of: Foo) -> dict[str, Any]:
    return {
        "apiVersion": "samplecontroller.k8s.io/v1alpha1",
        "kind": "Foo",
        "name": of.metadata.name,
        "uid": of.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def rendered(of: Foo, replicas: int) -> dict[str, Any]:
    """What of the Deployment is sent, of fields that say something."""
    labels = {"app": "nginx", "controller": of.metadata.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "test-deployment", "namespace": "default", "ownerReferences": [owner(of)]},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]}},
        },
    }


def said(tree: Any) -> Any:
    """Return it without empty values: null, zero, "", {} and []; a server takes them as absent."""
    if isinstance(tree, dict):
        return {key: value for key, value in ((key, said(value)) for key, value in tree.items()) if value not in (None, {}, [], "", 0)}
    return [said(each) for each in tree] if isinstance(tree, list) else tree


async def test_the_deployment_that_is_created_is_the_whole_one_and_nothing_else() -> None:
    async with stage() as at:
        made = await at.create(foo())
        await at.reconcile(FooController())
        created, status = at.actions
        assert said(created.body) == rendered(made, 1)
        assert created.query["fieldManager"] == status.query["fieldManager"] == ["sample-controller"]


async def test_the_deployment_that_is_replaced_is_sent_whole_and_without_a_version_so_other_drift_goes_too() -> None:
    async with stage() as at:
        made = await at.create(foo(replicas=3))
        drifted = await at.deployment(made, replicas=1)
        drifted.spec.template.spec.containers[0].image = "nginx:other"
        drifted.metadata.labels = {"by": "hand"}
        await at.client.update(drifted)
        await at.reconcile(FooController())
        replaced = at.actions[0]
        assert said(replaced.body) == rendered(made, 3)
        assert replaced.query["fieldManager"] == ["sample-controller"]
        now = await at.client.get(Deployment, "test-deployment")
        assert (now.spec.template.spec.containers[0].image, now.metadata.labels) == ("nginx:latest", {})


async def test_the_status_that_is_written_leaves_the_rest_of_the_foo_alone() -> None:
    async with stage() as at:
        made = await at.create(foo(replicas=2))
        await at.deployment(made, available=2)
        await at.reconcile(FooController())
        (status,) = at.actions
        assert status.body["spec"] == {"deploymentName": "test-deployment", "replicas": 2}
        assert status.body["metadata"]["resourceVersion"] == made.metadata.resource_version
        now = await at.client.get(Foo, "test")
        assert (now.status.available_replicas, now.metadata.generation) == (2, 1)


@pytest.mark.parametrize(
    "of_whom",
    [
        pytest.param("no owner", id="without an owner"),
        pytest.param("another Foo", id="of another Foo"),
        pytest.param("an earlier Foo of that name", id="of an earlier Foo of the same name, which another uid tells"),
    ],
)
async def test_a_deployment_of_another_owner_is_an_error_a_warning_and_nothing_written(of_whom: str) -> None:
    async with stage() as at:
        made = await at.create(foo())
        theirs = await at.deployment(made)
        theirs.metadata.owner_references[0].uid = "another"
        if of_whom == "no owner":
            theirs.metadata.owner_references = []
        if of_whom == "another Foo":
            theirs.metadata.owner_references[0].name = "other"
        await at.client.update(theirs)
        with pytest.raises(NotManagedError, match=TAKEN):
            await at.reconcile(FooController())
        at.actions.expect("")
        assert await at.recorded() == [("Warning", "ErrResourceExists", TAKEN)]


async def test_an_empty_deployment_name_is_reported_and_not_tried_again_and_nothing_is_written() -> None:
    async with stage() as at:
        await at.create(foo(deployment=""))
        with pytest.raises(TerminalError, match=r"default/test: spec\.deploymentName is empty"):
            await at.reconcile(FooController())
        at.actions.expect("")
        assert await at.events() == []


async def test_a_deployment_that_cannot_be_created_is_an_error_before_anything_else_is_written() -> None:
    async with stage() as at:
        await at.create(foo())
        at.server.faults.refuse(ServiceUnavailable, matching=on("create", Deployment))
        with pytest.raises(ServiceUnavailable):
            await at.reconcile(FooController())
        at.actions.expect("create Deployment default/test-deployment =>503")
        assert await at.events() == []


async def test_a_status_that_another_client_wrote_meanwhile_is_an_error_so_that_the_foo_is_read_again() -> None:
    async with stage() as at:
        made = await at.create(foo())
        await at.deployment(made)
        controller = FooController()
        async with at.connected(controller):
            found = controller.lister(Foo).get("test", "default")
            assert found is not None
            await at.client.patch(Foo, "test", {"metadata": {"labels": {"a": "b"}}})
            with pytest.raises(Conflict):
                await controller.reconcile(found)
        assert await at.events() == []


async def test_the_foo_of_the_cache_is_not_changed_by_a_reconcile() -> None:
    async with stage() as at:
        made = await at.create(foo())
        await at.deployment(made, available=1)
        controller = FooController()
        async with at.connected(controller):
            lister = controller.lister(Foo)
            first, second = lister.get("test", "default"), lister.get("test", "default")
            assert first is not None
            assert second is not None
            first.metadata = ObjectMeta(name="changed")
            assert second.metadata.name == "test"
