"""Triggers of a reconcile, and the retry of a failed one: the controller with its workers, on the test's own clock."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from examples.sample_controller.__main__ import RESYNC
from examples.sample_controller.controller import NAME, FooController, render
from examples.sample_controller.tests.stage import Stage, foo, stage
from examples.sample_controller.types import Foo
from kubeloop import InformerFactory, Manager
from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.controller import ReconcileCounts
from kubeloop.meta import OwnerReference, ServiceUnavailable
from kubeloop.testing import consistently, eventually, on, one

pytestmark = pytest.mark.embedded


class Running:
    """The controller in a manager."""

    def __init__(self, at: Stage, manager: Manager) -> None:
        self.at, self.manager = at, manager

    @property
    def counts(self) -> ReconcileCounts:
        return self.manager.stats[0].counts

    async def quiet(self) -> int:
        """Reconciles so far, when nothing more is to do but the next resync."""
        await consistently(one(self.at.client, ConfigMap, "nothing"), None, seconds=1)
        return self.counts.reconciles


@asynccontextmanager
async def running(at: Stage) -> AsyncIterator[Running]:
    client = at.server.client(user=NAME)
    async with (
        InformerFactory(client, resync=RESYNC, clock=at.clock) as informers,
        Manager(client, [FooController()], informers=informers, clock=at.clock) as manager,
    ):
        yield Running(at, manager)


async def test_a_foo_that_is_there_at_the_start_a_new_one_and_a_changed_one_are_reconciled() -> None:
    async with stage() as at:
        await at.create(foo("early", deployment="early"))
        async with running(at):
            await eventually(one(at.client, Deployment, "early"), lambda obj: obj.spec.replicas == 1)
            await at.create(foo("late", deployment="late"))
            await eventually(one(at.client, Deployment, "late"), lambda obj: obj.spec.replicas == 1)
            await at.client.patch(Foo, "late", {"spec": {"replicas": 3}})
            await eventually(one(at.client, Deployment, "late"), lambda obj: obj.spec.replicas == 3)


async def test_every_30_seconds_each_foo_is_reconciled_once_again_and_deployments_lead_to_nothing_then() -> None:
    async with stage() as at:
        made = await at.create(foo())
        await at.deployment(made, available=1)
        async with running(at) as it:
            before = await it.quiet()
            await consistently(one(at.client, ConfigMap, "nothing"), None, seconds=RESYNC)
            assert it.counts.reconciles == before + 1


async def test_a_deployment_that_is_deleted_comes_back() -> None:
    async with stage() as at:
        await at.create(foo())
        async with running(at):
            first = await eventually(one(at.client, Deployment, "test-deployment"), lambda obj: obj.spec.replicas == 1)
            await at.client.delete(first)
            await eventually(one(at.client, Deployment, "test-deployment"), lambda obj: obj.metadata.uid != first.metadata.uid)


async def test_a_deployment_whose_deletion_no_watch_reported_comes_back() -> None:
    """The informer learns of it by listing: the handler gets a tombstone, with the last state that was known."""
    async with stage() as at:
        await at.create(foo())
        async with running(at) as it:
            first = await eventually(one(at.client, Deployment, "test-deployment"), lambda obj: obj.spec.replicas == 1)
            await it.quiet()
            async with at.server.faults.hidden_changes(matching=on("watch", Deployment)):
                await at.client.delete(first)
            at.server.faults.expire_streams()
            await eventually(one(at.client, Deployment, "test-deployment"), lambda obj: obj.metadata.uid != first.metadata.uid)


async def test_a_deployment_scaled_by_hand_is_scaled_back_and_the_status_follows_the_available_replicas() -> None:
    async with stage() as at:
        await at.create(foo(replicas=2))
        async with running(at):
            made = await eventually(one(at.client, Deployment, "test-deployment"), lambda obj: obj.spec.replicas == 2)
            await at.client.patch(Deployment, "test-deployment", {"spec": {"replicas": 5}})
            made = await eventually(one(at.client, Deployment, "test-deployment"), lambda obj: obj.spec.replicas == 2)
            made.status.replicas = made.status.ready_replicas = made.status.available_replicas = 2
            await at.client.update_status(made)
            await eventually(one(at.client, Foo, "test"), lambda obj: obj.status.available_replicas == 2)


def references(made: Foo) -> dict[str, OwnerReference]:
    reference = OwnerReference(
        api_version="samplecontroller.k8s.io/v1alpha1", kind="Foo", name=made.metadata.name, uid=made.metadata.uid, controller=True
    )
    return {
        "an owner that is not a controller": replace(reference, controller=False),
        "a controller of another kind": replace(reference, kind="Bar"),
        "a controller of that kind in another group": replace(reference, api_version="example.com/v1alpha1"),
        "a controller that is gone": replace(reference, name="gone", uid="gone"),
    }


@pytest.mark.parametrize(
    "whose",
    [
        "an owner that is not a controller",
        "a controller of another kind",
        "a controller of that kind in another group",
        "a controller that is gone",
    ],
)
async def test_a_deployment_that_is_no_foos_leads_to_nothing(whose: str) -> None:
    async with stage() as at:
        made = await at.create(foo())
        await at.deployment(made)
        async with running(at) as it:
            await it.quiet()
            at.actions.clear()
            theirs = render(made)
            theirs.metadata.name, theirs.metadata.owner_references = "theirs", [references(made)[whose]]
            await at.client.delete(await at.client.create(theirs))
            await it.quiet()
            at.actions.expect("")
            assert it.counts.errors == 0


async def test_the_deletion_of_a_foo_leads_to_nothing_and_its_deployment_is_the_garbage_collectors() -> None:
    async with stage() as at:
        made = await at.create(foo())
        async with running(at) as it:
            await eventually(one(at.client, Deployment, "test-deployment"), lambda obj: obj.spec.replicas == 1)
            await it.quiet()
            at.actions.clear()
            await at.client.delete(made)
            await it.quiet()
            at.actions.expect("")
            assert it.counts.errors == 0


async def test_an_error_is_tried_again_until_it_is_gone_and_then_forgotten() -> None:
    async with stage() as at:
        at.server.faults.refuse(ServiceUnavailable, times=3, matching=on("create", Deployment))
        async with running(at) as it:
            await at.create(foo())
            await eventually(one(at.client, Deployment, "test-deployment"), lambda obj: obj.spec.replicas == 1)
            await it.quiet()
            assert it.counts.errors == 3
            at.actions.select("create").expect("""
                create Deployment default/test-deployment =>503
                create Deployment default/test-deployment =>503
                create Deployment default/test-deployment =>503
                create Deployment default/test-deployment
            """)


async def test_a_deployment_of_another_owner_is_tried_with_growing_pauses_and_taken_when_it_goes() -> None:
    async with stage() as at:
        theirs = await at.deployment(await at.create(foo("other", deployment="test-deployment")))
        async with running(at) as it:
            await at.create(foo())
            await it.quiet()
            assert it.counts.errors >= 5
            await at.client.delete(Foo, "other")
            await at.client.delete(theirs)
            # Nothing of the Foo that waits has changed: its next try, or the next resync, finds the name free.
            await eventually(
                one(at.client, Deployment, "test-deployment"), lambda obj: obj.metadata.owner_references[0].name == "test", within=60
            )


async def test_a_foo_without_a_deployment_name_is_not_tried_again_but_a_change_brings_it_back() -> None:
    async with stage() as at, running(at) as it:
        await at.create(foo(deployment=""))
        await it.quiet()
        assert (it.counts.reconciles, it.counts.terminal_errors) == (1, 1)
        await at.client.patch(Foo, "test", {"spec": {"deploymentName": "named"}})
        await eventually(one(at.client, Deployment, "named"), lambda obj: obj.spec.replicas == 1)


async def test_the_log_tells_the_life_of_the_controller(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, f"kubeloop.controller.{NAME}")
    async with stage() as at:
        await at.create(foo())
        async with running(at) as it:
            await it.quiet()
    said = [record.getMessage() for record in caplog.records if record.name == f"kubeloop.controller.{NAME}"]
    assert said[0] == "Starting workers, count=2"
    assert "Successfully synced default/test" in said
    assert said[-1] == "Shutting down workers"
