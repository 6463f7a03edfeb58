"""Custom kinds that differ in which fields they require; each with an object and with valid changes of its spec and of its status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from kubeloop.api.meta.v1 import Condition
from kubeloop.declare import ListMap
from kubeloop.meta import Model, ObjectMeta, Resource, custom_resource

API_VERSION = "helpers.example.com/v1"

Conditions = Annotated[list[Condition], ListMap("type")]


@custom_resource(API_VERSION, plural="bares")
class Bare(Resource):
    """Neither spec nor status."""


class OptionalSpec(Model):
    image: str | None = None
    replicas: int = 1


class OptionalStatus(Model):
    phase: str = ""
    count: int | None = None
    conditions: Conditions = msgspec.field(default_factory=list)


@custom_resource(API_VERSION, plural="speconlies")
class SpecOnly(Resource):
    """A spec with optional fields, and no status."""

    spec: OptionalSpec = msgspec.field(default_factory=OptionalSpec)


@custom_resource(API_VERSION, plural="optionals")
class Optional(Resource):
    """Optional fields only."""

    spec: OptionalSpec = msgspec.field(default_factory=OptionalSpec)
    status: OptionalStatus = msgspec.field(default_factory=OptionalStatus)


class RequiredSpec(Model):
    image: Annotated[str, Meta(min_length=1)]
    replicas: Annotated[int, Meta(ge=0, le=100)] = 1
    mode: Literal["Fast", "Safe"]


@custom_resource(API_VERSION, plural="specreqs")
class SpecRequired(Resource):
    """A required spec with required fields."""

    spec: RequiredSpec
    status: OptionalStatus = msgspec.field(default_factory=OptionalStatus)


@custom_resource(API_VERSION, plural="specedits")
class SpecEdited(Resource):
    """What a project becomes when a field of its spec loses its default: the class still says that the spec has one."""

    spec: RequiredSpec = msgspec.field(default_factory=cast("Callable[[], RequiredSpec]", RequiredSpec))
    status: OptionalStatus = msgspec.field(default_factory=OptionalStatus)


class RequiredStatus(Model):
    phase: Literal["Pending", "Running"]
    count: int
    conditions: Conditions = msgspec.field(default_factory=list)


@custom_resource(API_VERSION, plural="statusreqs")
class StatusRequired(Resource):
    """A status with required fields, which an object does not have at first."""

    spec: RequiredSpec
    status: RequiredStatus | None = None


class Template(Model):
    name: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class Part(Model):
    name: str
    template: Template


class NestedSpec(Model):
    image: str
    template: Template
    parts: Annotated[list[Part], ListMap("name")] = msgspec.field(default_factory=list)
    by_zone: dict[str, Template] = msgspec.field(default_factory=dict)


class NestedStatus(Model):
    phase: str = ""
    count: int | None = None
    current: Template | None = None
    parts: list[Part] = msgspec.field(default_factory=list)
    conditions: Conditions = msgspec.field(default_factory=list)


@custom_resource(API_VERSION, plural="nesteds")
class Nested(Resource):
    """Required structs with required fields within structs, lists and maps."""

    spec: NestedSpec
    status: NestedStatus = msgspec.field(default_factory=NestedStatus)


class SpecInStatus(Model):
    phase: str = ""
    count: int | None = None
    spec: str = ""
    metadata: int | None = None
    conditions: Conditions = msgspec.field(default_factory=list)


@custom_resource(API_VERSION, plural="specinstatuses")
class NamesInStatus(Resource):
    """A status with fields that are called as those of an object are."""

    spec: RequiredSpec
    status: SpecInStatus = msgspec.field(default_factory=SpecInStatus)


def _nothing(_: Any) -> None:
    """The kind has no such part."""


def _required() -> RequiredSpec:
    return RequiredSpec(image="nginx:1", mode="Safe")


def _nested() -> NestedSpec:
    template = Template(name="t", labels={"a": "b"})
    return NestedSpec(image="nginx:1", template=template, parts=[Part(name="p", template=template)], by_zone={"z": template})


def _set_image(obj: Any) -> None:
    obj.spec.image = "nginx:2"


def _nest(obj: Any) -> None:
    obj.spec.image = "nginx:2"
    obj.spec.parts = [*obj.spec.parts[:1], Part(name="q", template=Template(name="u"))]
    obj.spec.by_zone["y"] = Template(name="v")


def _set_count(obj: Any) -> None:
    obj.status.phase, obj.status.count = "Running", 3


def _make_status(obj: Any) -> None:
    if obj.status is None:
        obj.status = RequiredStatus(phase="Pending", count=0)
    _set_count(obj)


def _nest_status(obj: Any) -> None:
    _set_count(obj)
    obj.status.current = Template(name="t")
    obj.status.parts = [Part(name="p", template=Template(name="u"))]


def _names_in_status(obj: Any) -> None:
    _set_count(obj)
    obj.status.spec, obj.status.metadata = "something", 5


#: The field manager of what the tests write.
MANAGER = "helpers-test"


@dataclass(frozen=True)
class Case:
    """``cls`` is the kind; ``spec`` makes a spec; ``change`` and ``report`` change an object's spec and status to what the kind allows."""

    cls: Any
    spec: Callable[[], Model | None] = field(default=lambda: None)
    change: Callable[[Any], None] = _nothing
    report: Callable[[Any], None] = _nothing

    @property
    def has_spec(self) -> bool:
        return "spec" in self.cls.__struct_fields__

    @property
    def has_status(self) -> bool:
        return "status" in self.cls.__struct_fields__

    def make(self, name: str = "a", **metadata: Any) -> Any:
        """A new object of the kind."""
        fields: dict[str, Any] = {"spec": self.spec()} if self.has_spec else {}
        return self.cls(metadata=ObjectMeta(name=name, **metadata), **fields)


CASES = (
    Case(Bare),
    Case(SpecOnly, OptionalSpec, _set_image),
    Case(Optional, OptionalSpec, _set_image, _set_count),
    Case(SpecRequired, _required, _set_image, _set_count),
    Case(SpecEdited, _required, _set_image, _set_count),
    Case(StatusRequired, _required, _set_image, _make_status),
    Case(Nested, _nested, _nest, _nest_status),
    Case(NamesInStatus, _required, _set_image, _names_in_status),
)
