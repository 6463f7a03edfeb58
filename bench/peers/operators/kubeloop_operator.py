"""An operator with kubeloop: a Deployment for each Foo, its size kept, the available replicas reported."""

import msgspec

from kubeloop import Client, Controller, Manager, Model, ObjectMeta, Resource, custom_resource, run
from kubeloop.api.apps.v1 import Deployment, DeploymentSpec
from kubeloop.api.core.v1 import Container, PodSpec, PodTemplateSpec
from kubeloop.controller import set_controller_reference
from kubeloop.meta import LabelSelector


class FooSpec(Model):
    deployment_name: str
    replicas: int


class FooStatus(Model):
    available_replicas: int = 0


@custom_resource("samplecontroller.k8s.io/v1alpha1", plural="foos")
class Foo(Resource):
    spec: FooSpec
    status: FooStatus = msgspec.field(default_factory=FooStatus)


class FooController(Controller[Foo], owns=[Deployment]):
    async def reconcile(self, foo: Foo) -> None:
        deployment = self.lister(Deployment).get(foo.spec.deployment_name, foo.metadata.namespace)
        if deployment is None:
            deployment = await self.client.create(render(foo))
        elif deployment.spec.replicas != foo.spec.replicas:
            deployment.spec.replicas = foo.spec.replicas
            deployment = await self.client.update(deployment)
        available = deployment.status.available_replicas or 0
        if foo.status.available_replicas != available:
            foo.status.available_replicas = available
            await self.client.update_status(foo)


def render(foo: Foo) -> Deployment:
    labels = {"app": "nginx", "controller": foo.metadata.name}
    deployment = Deployment(
        metadata=ObjectMeta(name=foo.spec.deployment_name, namespace=foo.metadata.namespace, labels=labels),
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


async def main() -> None:
    async with Client.from_config() as client:
        await Manager(client, [FooController()]).run()


if __name__ == "__main__":
    run(main())
