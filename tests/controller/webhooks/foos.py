"""A custom kind in two versions, for tests of hooks and converters."""

from __future__ import annotations

import msgspec

from kubeloop.meta import Model, Resource, custom_resource


class FooSpec(Model):
    size: int | None = None
    names: list[str] = msgspec.field(default_factory=list)
    labels: dict[str, str] = msgspec.field(default_factory=dict)


@custom_resource("example.com/v1", plural="foos")
class Foo(Resource):
    spec: FooSpec = msgspec.field(default_factory=FooSpec)


class FooSpecV2(Model):
    count: int | None = None


@custom_resource("example.com/v2", plural="foos", kind="Foo")
class FooV2(Resource):
    spec: FooSpecV2 = msgspec.field(default_factory=FooSpecV2)


class FooSpecV3(Model):
    replicas: int | None = None


@custom_resource("example.com/v3", plural="foos", kind="Foo")
class FooV3(Resource):
    spec: FooSpecV3 = msgspec.field(default_factory=FooSpecV3)
