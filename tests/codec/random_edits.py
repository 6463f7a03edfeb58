"""Random documents of a kind, with much that its models do not know, and one random edit on an object and on a plain tree alike."""

from __future__ import annotations

import copy
import json
import random
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from hypothesis import assume

from kubeloop.codec.shape import FieldShape, Shape, ValueForm, fields_of
from kubeloop.declare import ListMap
from kubeloop.meta import Model, Quantity, Resource, custom_resource

SKIPPED = {"managedFields", "selfLink"}
Tree = dict[str, Any]


def scalar(shape: Shape, rng: random.Random) -> tuple[Any, Any]:
    """A value as Python has it, and as JSON says it."""
    word = f"w{rng.randrange(10**9)}"
    number = rng.choice([rng.randrange(1, 70000), 2**53 + rng.randrange(1, 9), 2**62 + 1])
    moment = datetime(2026, 1, 1 + rng.randrange(28), rng.randrange(24), tzinfo=UTC)
    table: dict[Any, tuple[Any, Any]] = {
        str: (word, word),
        int: (number, number),
        float: (number + 0.5, number + 0.5),
        bool: (True, True),
        bytes: (b"raw\0", "cmF3AA=="),
        Quantity: (Quantity(f"{number}m"), str(Quantity(f"{number}m"))),
        Any: ({"any": [word, 1.5]}, {"any": [word, 1.5]}),
        datetime: (moment, moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if shape.micro else "%Y-%m-%dT%H:%M:%SZ")),
    }
    return table[shape.type]


def document(cls: type[Any], rng: random.Random, depth: int) -> Tree:
    """A tree of a few known fields of each struct, some of them null, with unknown fields."""
    fields = [field for field in fields_of(cls).by_wire.values() if field.wire not in SKIPPED]
    chosen = {field.wire: field for field in rng.sample(fields, min(len(fields), 4))}
    for wire in ("spec", "template", "containers", "metadata", "name"):
        if wire in fields_of(cls).by_wire:
            chosen[wire] = fields_of(cls).by_wire[wire]
    tree: Tree = {}
    for wire, field in chosen.items():
        if rng.random() < 0.1:
            tree[wire] = None
        else:
            built = value_of(field.shape, rng, depth - 1, field)
            if built is not None:
                tree[wire] = built
    # Unknown parts follow from known ones, so that items which are alike to the models are alike altogether.
    mark = sum(json.dumps(tree, sort_keys=True).encode()) % 4
    if mark == 1:
        tree["unknownField"] = {"kept": [1.0, None, 12345678901234567890]}
    elif mark == 2:
        tree["unknownNull"] = None
    return tree


def value_of(shape: Shape, rng: random.Random, depth: int, field: FieldShape | None = None) -> Any:
    if shape.form is ValueForm.ANY or depth < 0:
        return None
    if shape.form is ValueForm.STRUCT:
        return document(shape.type, rng, depth)
    if shape.form is ValueForm.LIST and shape.item is not None:
        return [
            built
            for _ in range(rng.randrange(4))
            if (built := value_of(shape.item, rng, depth)) is not None and with_keys(built, field, rng)
        ]
    if shape.form is ValueForm.MAP and shape.item is not None:
        return {f"k{index}": built for index in range(rng.randrange(3)) if (built := value_of(shape.item, rng, depth)) is not None}
    return scalar(shape, rng)[1]


def with_keys(item: Any, field: FieldShape | None, rng: random.Random) -> bool:
    """Keys of keyed lists are there and unique, as a server makes sure."""
    if field is not None and field.keys and field.shape.item is not None:
        for known in fields_of(field.shape.item.type).by_wire.values():
            if known.name in field.keys:
                item[known.wire] = scalar(known.shape, rng)[1]
    return True


REARRANGEMENTS = ["delete", "move", "swap", "reverse", "rotate", "halve"]


def rearrange(way: str, items: list[Any], at: int, to: int) -> None:
    """What programs do to lists without looking into their items."""
    if way == "delete":
        del items[at]
    elif way == "move":
        items.insert(to, items.pop(at))
    elif way == "swap":
        items[at], items[to] = items[to], items[at]
    elif way == "reverse":
        items.reverse()
    elif way == "rotate":
        items[:] = items[at:] + items[:at]
    elif way == "halve":
        items[:] = items[::2]
    elif way == "duplicate":
        items.insert(to, copy.deepcopy(items[at]))


class Edit:
    """Walks down a typed object and its tree together, and makes one change in both."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def struct(self, obj: Any, tree: Tree) -> None:
        fields = [
            field
            for field in fields_of(type(obj)).by_wire.values()
            if field.wire not in SKIPPED
            and field.shape.form is not ValueForm.ANY
            and (field.shape.form is not ValueForm.STRUCT or fields_of(field.shape.type).by_wire)
        ]
        if not fields:
            return
        inner = [field for field in fields if tree.get(field.wire)]
        field = self.rng.choice(inner if inner and self.rng.random() < 0.8 else fields)
        now = getattr(obj, field.name)
        if now is not None and field.optional and self.rng.random() < 0.15:
            setattr(obj, field.name, None)
            tree.pop(field.wire, None)
        elif field.shape.form is ValueForm.STRUCT:
            if now is None:
                now = field.shape.type()
                setattr(obj, field.name, now)
                tree[field.wire] = to_plain(now)
            tree[field.wire] = tree.get(field.wire) or {}
            before = json.dumps(tree[field.wire])
            self.struct(now, tree[field.wire])
            if json.dumps(tree[field.wire]) == before == "{}":
                tree.pop(field.wire)
                setattr(obj, field.name, None if field.optional else now)
        elif field.shape.form is ValueForm.LIST:
            tree[field.wire] = self.list_in(field.shape, now, tree.get(field.wire), keyed=bool(field.keys))
        elif field.shape.form is ValueForm.MAP:
            if now is None:
                setattr(obj, field.name, now := {})
            tree[field.wire] = self.map_in(field.shape, now, tree.get(field.wire))
        else:
            python, wire = scalar(field.shape, self.rng)
            setattr(obj, field.name, python)
            tree[field.wire] = wire

    def list_in(self, shape: Shape, now: list[Any], tree: list[Any] | None, *, keyed: bool) -> list[Any]:
        tree = tree or []
        assert shape.item is not None
        at = self.rng.randrange(len(now)) if now else 0
        # If the models cannot distinguish two items, it cannot be decided which one was moved or removed.
        assume(all(now.count(item) == 1 for item in now))
        action = self.rng.choice(["insert", "clear", "rearrange", "rearrange", "edit", "edit"]) if now else "insert"
        if action == "insert":
            python, wire = self.item(shape.item)
            assume(python not in now)
            now.insert(at, python)
            tree.insert(at, wire)
        elif action == "clear":
            now.clear()
            tree.clear()
        elif action == "edit":
            self.inside(shape.item, now, tree, at)
        else:
            structs = shape.item.form is ValueForm.STRUCT
            # Servers refuse a key twice; an item without known fields cannot be distinguished from a new item; and one item copied over
            # another cannot be distinguished from an edit of the other.
            if structs and not keyed and to_plain(now[at]) and self.rng.random() < 0.2:
                ways = ["duplicate"]
            else:
                ways = [self.rng.choice(REARRANGEMENTS) for _ in range(self.rng.randrange(1, 4))]
            for way in ways:
                if now:
                    at, to = at % len(now), self.rng.randrange(len(now))
                    rearrange(way, now, at, to)
                    rearrange(way, tree, at, to)
        return tree

    def map_in(self, shape: Shape, now: dict[str, Any], tree: Tree | None) -> Tree:
        tree = tree or {}
        assert shape.item is not None
        key = self.rng.choice([*now, "added"])
        if key == "added":
            now[key], tree[key] = self.item(shape.item)
        elif self.rng.random() < 0.4:
            del now[key], tree[key]
        else:
            self.inside(shape.item, now, tree, key)
        return tree

    def inside(self, shape: Shape, now: Any, tree: Any, at: Any) -> None:
        if shape.form is ValueForm.STRUCT:
            if tree[at] is None:
                tree[at] = {}
            self.struct(now[at], tree[at])
        elif shape.form is ValueForm.SCALAR:
            now[at], tree[at] = scalar(shape, self.rng)

    def item(self, shape: Shape) -> tuple[Any, Any]:
        if shape.form is not ValueForm.STRUCT:
            return ([], []) if shape.form is ValueForm.LIST else ({}, {}) if shape.form is ValueForm.MAP else scalar(shape, self.rng)
        made = shape.type()
        for field in fields_of(shape.type).by_wire.values():
            if field.shape.form is ValueForm.SCALAR:
                setattr(made, field.name, scalar(field.shape, self.rng)[0])
        return made, to_plain(made)


def to_plain(made: Any) -> Tree:
    from kubeloop.codec.changes import encode_struct

    tree: Tree = json.loads(encode_struct(made))
    return tree


class Port(Model):
    name: str = ""
    number: int | None = None
    weight: float | None = None


class Leaf(Model):
    word: str = ""
    at: datetime | None = None
    memory: Quantity | None = None
    ports: Annotated[list[Port], ListMap("name")] = msgspec.field(default_factory=list)
    nested: list[list[Port]] = msgspec.field(default_factory=list)


class Branch(Model):
    leaf: Leaf = msgspec.field(default_factory=Leaf)
    maybe: Leaf | None = None
    leaves: list[Leaf] = msgspec.field(default_factory=list)
    by_name: dict[str, Leaf] = msgspec.field(default_factory=dict)
    flags: dict[str, bool] = msgspec.field(default_factory=dict)
    numbers: list[float] = msgspec.field(default_factory=list)


@custom_resource("garden.example.com/v1", plural="trees")
class Plant(Resource):
    """A kind declared in Python, with lists of all sorts."""

    spec: Branch = msgspec.field(default_factory=Branch)
    status: Branch | None = None
