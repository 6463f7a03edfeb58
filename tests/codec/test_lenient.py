"""Values that break what a class declares are read as they are: a newer server, or an object older than its rules, sent them."""

from __future__ import annotations

import enum
import json
from typing import Annotated, Any, Literal, cast

import msgspec
import pytest
from msgspec import Meta

from kubeloop.codec import decode, encode
from kubeloop.codec.encoding_checks import checked
from kubeloop.declare import Limits, ListMap
from kubeloop.meta import DecodeError, IntOrString, Model, Quantity, Resource, Time, custom_resource


class Colour(enum.StrEnum):
    RED = "Red"
    BLUE = "Blue"


class Part(Model):
    name: Annotated[str, Meta(max_length=3)]
    size: int = 0


class GadgetSpec(Model):
    mode: Literal["Fast", "Slow"]
    colour: Colour = Colour.RED
    count: Annotated[int, Meta(ge=1, le=10)] = 1
    loose: Annotated[int, Limits(maximum=1)] = 0
    since: Time | None = None
    limit: Quantity | None = None
    port: IntOrString = 80
    parts: Annotated[list[Part], ListMap("name")] = msgspec.field(default_factory=list)
    by_name: dict[str, Part] = msgspec.field(default_factory=dict)
    free: Any = None
    raw: msgspec.Raw = msgspec.Raw(b"{}")
    secret: bytes = b""


@custom_resource("example.com/v1", plural="gadgets")
class Gadget(Resource):
    spec: GadgetSpec


def read(**spec: Any) -> Gadget:
    return decode(Gadget, json.dumps({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": spec}).encode())


def test_an_unknown_choice_is_kept_as_it_was_sent() -> None:
    spec = read(mode="Turbo", colour="Green").spec
    assert (spec.mode, spec.colour) == ("Turbo", "Green")


def test_known_fields_beside_it_are_read_as_usual() -> None:
    spec = read(
        mode="Turbo", colour="Blue", since="2026-01-02T03:04:05Z", limit="1Gi", port="http", parts=[{"name": "a", "size": 2.0}],
        byName={"x": {"name": "b"}}, free={"a": [1]}, raw={"b": 1}, secret="aGk=",
    ).spec  # fmt: skip
    assert (spec.colour, spec.limit, spec.port, spec.secret) == (Colour.BLUE, Quantity("1Gi"), "http", b"hi")
    assert spec.since is not None
    assert spec.since.year == 2026
    assert (spec.parts, spec.by_name) == ([Part(name="a", size=2)], {"x": Part(name="b")})
    assert (spec.free, spec.raw) == ({"a": [1]}, msgspec.Raw(b'{"b":1}'))


def test_bounds_are_not_checked_on_stored_objects() -> None:
    spec = read(mode="Fast", count=99, loose=7, parts=[{"name": "too long"}]).spec
    assert (spec.count, spec.loose, spec.parts[0].name) == (99, 7, "too long")


def test_a_missing_choice_without_default_is_empty() -> None:
    assert str(read().spec.mode) == ""


def test_an_object_that_was_read_so_is_written_back_with_its_changes_only() -> None:
    gadget = read(mode="Turbo", count=99, later={"new": True})
    gadget.spec.port = 81
    assert json.loads(encode(gadget))["spec"] == {"mode": "Turbo", "count": 99, "later": {"new": True}, "port": 81}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        pytest.param({"mode": "Turbo", "count": "many"}, "spec.count", id="text for a number"),
        pytest.param({"mode": 3}, "spec.mode", id="a number for a choice of texts"),
        pytest.param({"mode": "Turbo", "parts": {"name": "a"}}, "spec.parts", id="an object for a list"),
    ],
)
def test_a_value_of_another_type_is_still_an_error(spec: dict[str, Any], path: str) -> None:
    with pytest.raises(DecodeError, match=path):
        read(**spec)


def test_items_of_a_list_are_followed_by_the_keys_that_its_marker_names() -> None:
    gadget = read(mode="Fast", parts=[{"name": "a", "x": 1}, {"name": "b", "x": 2}])
    gadget.spec.parts = [Part(name="b", size=5), Part(name="a")]
    assert json.loads(encode(gadget))["spec"]["parts"] == [{"name": "b", "x": 2, "size": 5}, {"name": "a", "x": 1}]


def test_values_of_a_newer_server_may_be_sent_back_but_values_set_here_are_checked() -> None:
    gadget = read(mode="Turbo", count=99)
    gadget.spec.port = 81
    assert checked(gadget, encode)
    gadget.spec.loose = cast("int", "much")
    with pytest.raises(ValueError, match=r'Gadget "g": spec.loose: expected int, got str'):
        checked(gadget, encode)
    known = read(mode="Fast")
    known.spec.count = 11
    with pytest.raises(ValueError, match=r'Gadget "g": spec.count: expected int <= 10'):
        checked(known, encode)
