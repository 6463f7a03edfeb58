"""Two variants of the controller: the first applies its Deployment on the server, the second clears up with a finalizer."""

from __future__ import annotations

from examples.sample_controller.controller import NAME, WRITES, FooController, render
from examples.sample_controller.types import Foo
from kubeloop.api.apps.v1 import Deployment
from kubeloop.controller.controllerutil.finalizers import add_finalizer, remove_finalizer

FINALIZER = "samplecontroller.k8s.io/deployments"


class ApplyingFooController(FooController, name=NAME):
    """Sends what it wants with server-side apply, in every reconcile: manual changes of these fields are reverted, and what it
    does not name (labels, annotations, a sidecar) stays theirs."""

    async def deployment_of(self, foo: Foo) -> Deployment:
        existing = self.lister(Deployment).get(foo.spec.deployment_name, foo.metadata.namespace)
        if existing is not None:
            self.refuse_others(existing, foo)
        deployment = await self.client.apply(render(foo), field_manager=NAME, force=True)
        self.refuse_others(deployment, foo)
        return deployment


class FinalizingFooController(FooController, name=NAME):
    """Deletes the Deployments of a Foo itself before the Foo goes: where no garbage collector runs, and where the order matters."""

    async def reconcile(self, foo: Foo) -> None:
        if foo.metadata.deletion_timestamp is None:
            await super().reconcile(await add_finalizer(self.client, foo, FINALIZER, options=WRITES))
            return
        if FINALIZER not in foo.metadata.finalizers:
            return
        deployments = self.owned(Deployment, foo)
        for deployment in deployments:
            if deployment.metadata.deletion_timestamp is None:
                await self.client.delete(deployment)
        # Their deletion leads here again.
        if not deployments:
            self.events.normal(foo, "Finalized", "all Deployments of the Foo are gone")
            await remove_finalizer(self.client, foo, FINALIZER, options=WRITES)
