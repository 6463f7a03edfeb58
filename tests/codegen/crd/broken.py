"""Kinds that a server would refuse, each for one reason."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kubeloop import Model, Resource, custom_resource
from kubeloop.declare import Column, Default, ListMap, Schema, constrain, crd, rule


class Item(Model):
    name: str = ""


class BareKey(Model):
    items: Annotated[list[Item], ListMap("name")] = msgspec.field(default_factory=list)


@custom_resource("example.com/v1", plural="keys")
class Key(Resource):
    spec: dict[str, BareKey] = msgspec.field(default_factory=dict)


@rule("self.mni > 0")
class Misspelt(Model):
    min: int = 0


@custom_resource("example.com/v1", plural="rules")
class Ruled(Resource):
    spec: list[Misspelt] = msgspec.field(default_factory=list)


@custom_resource("example.com/v1", plural="defaults")
class Defaulted(Resource):
    size: Annotated[int, Default("big")] | None = None


@custom_resource("example.com/v1", plural="columns")
@crd(columns=[Column("Size", "spec.size")])
class Columned(Resource):
    size: int = 0


@custom_resource("example.com/v1", plural="roots")
@crd(status=True)
@constrain(Schema({"oneOf": [{"required": ["size"]}]}))
class Rooted(Resource):
    size: int = 0


@custom_resource("example.k8s.io/v1", plural="guarded")
class Guarded(Resource):
    size: int = 0


@custom_resource("v1", plural="groupless")
class Groupless(Resource):
    size: int = 0
