"""The variants: server-side apply corrects the controller's fields and leaves those of others; the finalizer clears up."""

from __future__ import annotations

import pytest

from examples.sample_controller.controller import NAME, NotManagedError
from examples.sample_controller.tests.stage import foo, stage
from examples.sample_controller.types import Foo
from examples.sample_controller.variants import FINALIZER, ApplyingFooController, FinalizingFooController
from kubeloop import InformerFactory, Manager
from kubeloop.api.apps.v1 import Deployment
from kubeloop.client import ALL_NAMESPACES, extract
from kubeloop.testing import eventually, many, one

pytestmark = pytest.mark.embedded


async def test_applying_creates_the_deployment_and_owns_what_it_says_of_it() -> None:
    async with stage() as at:
        await at.create(foo())
        await at.reconcile(ApplyingFooController())
        at.actions.expect("""
            patch   Deployment  default/test-deployment  spec.replicas=1
            update  Foo/status  default/test
        """)
        assert at.actions[0].content_type.startswith("application/apply-patch")
        made = await at.client.get(Deployment, "test-deployment")
        owned = extract(made, NAME)
        assert [container.image for container in owned.spec.template.spec.containers] == ["nginx:latest"]
        assert owned.spec.strategy.type is None  # the server's default has no manager
        assert made.spec.strategy.type == "RollingUpdate"


async def test_applying_puts_its_fields_right_and_leaves_those_of_others() -> None:
    async with stage() as at:
        await at.create(foo())
        await at.reconcile(ApplyingFooController())
        drifted = await at.client.get(Deployment, "test-deployment")
        drifted.spec.template.spec.containers[0].image = "nginx:other"
        drifted.metadata.labels = {"by": "hand"}
        await at.client.update(drifted)
        await at.reconcile(ApplyingFooController())
        now = await at.client.get(Deployment, "test-deployment")
        assert (now.spec.template.spec.containers[0].image, now.metadata.labels) == ("nginx:latest", {"by": "hand"})


async def test_applying_refuses_a_deployment_of_another_owner() -> None:
    async with stage() as at:
        await at.deployment(await at.create(foo("other")))
        await at.create(foo())
        with pytest.raises(NotManagedError):
            await at.reconcile(ApplyingFooController())
        at.actions.expect("")


async def test_a_foo_with_a_finalizer_goes_when_all_its_deployments_are_gone_also_those_of_earlier_names() -> None:
    async with stage() as at:
        client = at.server.client(user=NAME)
        async with (
            InformerFactory(client, clock=at.clock) as informers,
            Manager(client, [FinalizingFooController()], informers=informers, clock=at.clock),
        ):
            await at.create(foo())
            await eventually(one(at.client, Foo, "test"), lambda obj: obj.metadata.finalizers == [FINALIZER])
            await at.client.patch(Foo, "test", {"spec": {"deploymentName": "renamed"}})
            await eventually(many(at.client, Deployment), lambda objects: len(objects) == 2)
            await at.client.delete(Foo, "test")
            await eventually(one(at.client, Foo, "test"), None)
            assert list(await at.client.list(Deployment, namespace=ALL_NAMESPACES)) == []
        assert [reason for _, reason, _ in await at.events()][-1] == "Finalized"
