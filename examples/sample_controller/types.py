"""The custom kind: a Foo names a Deployment and says how many replicas it shall have.

``manifests/crd-status-subresource.yaml`` is what ``kubeloop generate crd examples.sample_controller.types`` makes of this module.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kubeloop import Model, Resource, custom_resource
from kubeloop.declare import crd


class FooSpec(Model):
    deployment_name: str = ""
    replicas: Annotated[int, Meta(ge=1, le=10)] | None = None


class FooStatus(Model):
    available_replicas: int | None = None  # 0 is written, too


# Groups that end in k8s.io are protected; this one is an example and says so.
@custom_resource("samplecontroller.k8s.io/v1alpha1", plural="foos")
@crd(annotations={"api-approved.kubernetes.io": "unapproved, experimental-only; an example of kubeloop"})
class Foo(Resource):
    spec: FooSpec = msgspec.field(default_factory=FooSpec)
    status: FooStatus = msgspec.field(default_factory=FooStatus)
