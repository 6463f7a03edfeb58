"""The controller: for each Foo a Deployment of nginx with as many replicas as the Foo asks for."""

from __future__ import annotations

from examples.sample_controller.types import Foo
from kubeloop import Controller, KubeloopError, ObjectMeta, TerminalError
from kubeloop.api.apps.v1 import Deployment, DeploymentSpec
from kubeloop.api.core.v1 import Container, PodSpec, PodTemplateSpec
from kubeloop.client import WriteOptions
from kubeloop.controller import Owns, is_controlled_by, resource_version_changed, set_controller_reference
from kubeloop.meta import LabelSelector, ObjectKey
from kubeloop.timing import Clock, TokenBucket
from kubeloop.workqueue import BucketLimiter, ExponentialLimiter, Limiter, MaxOfLimiter

NAME = "sample-controller"
WRITES = WriteOptions(field_manager=NAME)


class NotManagedError(KubeloopError):
    """A Deployment of the wanted name exists, and belongs to another owner."""


class FooController(
    Controller[Foo],
    owns=[Owns(Deployment, predicates=(resource_version_changed,))],  # a resync of Deployments is no news; one of Foos is
    workers=2,
    name=NAME,
    warm_up=True,
):
    """Creates the Deployment, keeps its replicas, reports how many are available, and says so in events."""

    def retry_limiter(self, clock: Clock) -> Limiter[ObjectKey]:
        """Each Foo by itself, and all of them together at most 50 times per second, after the first 300."""
        return MaxOfLimiter(ExponentialLimiter(initial=0.005, cap=1000.0), BucketLimiter(TokenBucket(50, 300, clock)))

    async def start(self) -> None:
        self.log.info("Starting workers, count=%d", type(self).workers)

    async def stop(self) -> None:
        self.log.info("Shutting down workers")

    async def reconcile(self, foo: Foo) -> None:
        if not foo.spec.deployment_name:
            # Trying again cannot help; a change of the Foo brings it back.
            raise TerminalError(f"{foo.metadata.namespace}/{foo.metadata.name}: spec.deploymentName is empty")
        deployment = await self.deployment_of(foo)
        # Written even if it is what it was, as the original does; the server stores nothing then.
        foo.status.available_replicas = deployment.status.available_replicas or 0
        await self.client.update_status(foo, options=WRITES)
        self.events.normal(foo, "Synced", "Foo synced successfully")
        self.log.info("Successfully synced %s/%s", foo.metadata.namespace, foo.metadata.name)

    async def deployment_of(self, foo: Foo) -> Deployment:
        """The Deployment, made or changed to what the Foo asks for.

        Raises:
            NotManagedError: there is one of that name that is not this Foo's.
        """
        deployment = self.lister(Deployment).get(foo.spec.deployment_name, foo.metadata.namespace)
        if deployment is None:
            deployment = await self.client.create(render(foo), options=WRITES)
        self.refuse_others(deployment, foo)
        if foo.spec.replicas is not None and foo.spec.replicas != deployment.spec.replicas:
            self.log.debug("%s: %s replicas, %d wanted", deployment.metadata.name, deployment.spec.replicas, foo.spec.replicas)
            # Without a resourceVersion: the write overrules writes in between, and other manual changes, too.
            rendered = render(foo)
            deployment.metadata, deployment.spec = rendered.metadata, rendered.spec
            deployment = await self.client.update(deployment, options=WRITES)
        return deployment

    def refuse_others(self, deployment: Deployment, foo: Foo) -> None:
        """
        Raises:
            NotManagedError: the Deployment is not this Foo's; an event says so, too.
        """
        if not is_controlled_by(deployment, foo):
            message = f'Resource "{deployment.metadata.name}" already exists and is not managed by Foo'
            self.events.warning(foo, "ErrResourceExists", message)
            raise NotManagedError(message)


def render(foo: Foo) -> Deployment:
    """The Deployment that a Foo stands for. Without ``spec.replicas`` the server's default counts."""
    labels = {"app": "nginx", "controller": foo.metadata.name}
    deployment = Deployment(
        metadata=ObjectMeta(name=foo.spec.deployment_name, namespace=foo.metadata.namespace),
        spec=DeploymentSpec(
            replicas=foo.spec.replicas,
            selector=LabelSelector(match_labels=labels),
            template=PodTemplateSpec(
                metadata=ObjectMeta(labels=labels),
                spec=PodSpec(containers=[Container(name="nginx", image="nginx:latest")]),
            ),
        ),
    )
    set_controller_reference(foo, deployment)
    return deployment
