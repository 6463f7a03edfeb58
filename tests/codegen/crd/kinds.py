"""Kinds for the tests of ``generate crd``: every marker once, two versions of one kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kubeloop import Model, Resource, custom_resource
from kubeloop.api.core.v1 import ResourceRequirements
from kubeloop.declare import (
    Atomic,
    Column,
    Default,
    Embedded,
    Enum,
    Format,
    Limits,
    ListMap,
    ListSet,
    Nullable,
    Opaque,
    PreserveUnknown,
    Pruned,
    Required,
    Rule,
    Scale,
    constrain,
    crd,
    rule,
)
from kubeloop.meta import IntOrString, LabelSelector, Quantity, Time


class Port(Model):
    """One port of a gadget."""

    name: Annotated[str, Meta(min_length=1, max_length=15, pattern="^[a-z]+$")]
    number: Annotated[int, Meta(ge=1, le=65535), Format("int32")] = 80
    """Where it listens.

    Must be
    free.
    """
    protocol: Annotated[Literal["TCP", "UDP"], Required()] = "TCP"


class Tree(Model):
    name: str = ""
    below: Annotated[list[Tree], Opaque()] = msgspec.field(default_factory=list)


@constrain(Atomic(), PreserveUnknown())
class Window(Model):
    start: Time | None = None
    ratio: Annotated[float, Limits(minimum=0, exclusive_minimum=True)] | None = None


@rule("self.min <= self.max", message="min must not exceed max", reason="FieldValueInvalid", field_path=".min")
@rule("self.mode == oldSelf.mode", message="mode cannot change")
class GadgetSpec(Model):
    """The desired state of a gadget."""

    min: int = 1
    max: Annotated[int, Meta(le=100), Rule("self % 2 == 0", message="max must be even")] = 10
    mode: Literal["Fast", "Slow"] = "Fast"
    level: Annotated[IntOrString, Enum([1, "high"])] | None = None
    replicas: Annotated[int, Format("int32")] = 1
    ports: Annotated[list[Port], ListMap("name"), Meta(max_length=16)] = msgspec.field(default_factory=list)
    tags: Annotated[list[str], ListSet()] = msgspec.field(default_factory=list)
    words: Annotated[list[str], Atomic()] = msgspec.field(default_factory=list)
    labels: dict[str, Annotated[str, Meta(max_length=63)]] = msgspec.field(default_factory=dict)
    memory: Quantity | None = None
    surge: IntOrString = "25%"
    selector: LabelSelector | None = None
    resources: ResourceRequirements | None = None
    whole: Annotated[dict[str, Any], Embedded()] | None = None
    free: dict[str, Any] | None = None
    nothing: Annotated[dict[str, Any], Pruned()] | None = None
    note: Annotated[str | None, Nullable()] = None
    flag: Annotated[bool, Default(False)] = False
    window: Annotated[Window, Default({})] | None = None
    tree: Tree | None = None
    from_: str = msgspec.field(default="", name="from")


class GadgetStatus(Model):
    replicas: int = 0
    selector: str = ""


@custom_resource("kubeloop-codegen.example.com/v1", plural="gadgets", short_names=("gd",), categories=("all",))
@crd(
    columns=[
        Column("Mode", ".spec.mode", description="How fast it is."),
        Column("Max", ".spec.max", "integer", priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ],
    scale=Scale(label_selector=".status.selector"),
    selectable_fields=[".spec.mode"],
    storage=True,
)
class Gadget(Resource):
    """A gadget."""

    spec: GadgetSpec
    status: GadgetStatus | None = None


class OldSpec(Model):
    mode: str = ""


@custom_resource("kubeloop-codegen.example.com/v1beta1", plural="gadgets", kind="Gadget", short_names=("gd",), categories=("all",))
@crd(deprecated=True, deprecation_warning="use v1")
@constrain(PreserveUnknown())
class OldGadget(Resource):
    spec: OldSpec | None = None


@custom_resource("kubeloop-codegen.example.com/v1", plural="halls", namespaced=False)
class Hall(Resource):
    size: Annotated[int, Meta(ge=1)]
