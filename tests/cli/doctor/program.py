"""A program for ``kubeloop doctor`` to look at."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kubeloop import Controller, Model, Resource, custom_resource
from kubeloop.api.core.v1 import ConfigMap, Secret
from kubeloop.controller import ControllerBase

GROUP = "doctor.kubeloop.example.com"


class GadgetSpec(Model):
    size: Annotated[int, Meta(ge=1)] = 1
    colour: str = ""


class GadgetStatus(Model):
    ready: bool = False


@custom_resource(f"{GROUP}/v1", plural="gadgets")
class Gadget(Resource):
    spec: GadgetSpec = msgspec.field(default_factory=GadgetSpec)
    status: GadgetStatus = msgspec.field(default_factory=GadgetStatus)


class Gadgets(Controller[Gadget], owns=[Secret], reads=[ConfigMap], name="gadgets"):
    async def reconcile(self, gadget: Gadget) -> None: ...


def controllers() -> list[ControllerBase[Any]]:
    return [Gadgets()]
