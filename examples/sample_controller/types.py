"""The custom kind: a Foo names a Deployment and says how many replicas it shall have."""

from __future__ import annotations

import msgspec

from kubeloop import Model, Resource, custom_resource


class FooSpec(Model):
    deployment_name: str = ""
    replicas: int | None = None


class FooStatus(Model):
    available_replicas: int = 0


@custom_resource("samplecontroller.k8s.io/v1alpha1", plural="foos")
class Foo(Resource):
    spec: FooSpec = msgspec.field(default_factory=FooSpec)
    status: FooStatus = msgspec.field(default_factory=FooStatus)
