"""Objects are checked against their classes before they are sent, in the server's words."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import msgspec
import pytest
from msgspec import Meta

from kubeloop.api.core.v1 import Container, Pod, PodSpec
from kubeloop.declare import Limits, Required
from kubeloop.meta import Invalid, Model, ObjectMeta, Quantity, Resource, custom_resource
from kubeloop.schema.classes import check, require_valid


class LampSpec(Model):
    watts: Annotated[int, Meta(ge=1, le=100)] = 40
    colour: Literal["Warm", "Cold"] = "Warm"
    room: Annotated[str, Limits(pattern=r"^\pL+$")] = ""
    socket: Annotated[str, Required()] = "E27"
    limit: Quantity | None = None
    names: list[str] = msgspec.field(default_factory=list)


@custom_resource("example.com/v1", plural="lamps")
class Lamp(Resource):
    spec: LampSpec


def lamp(**spec: Any) -> Lamp:
    return Lamp(metadata=ObjectMeta(name="desk"), spec=LampSpec(**spec))


def test_a_right_value_passes_whatever_its_defaults() -> None:
    assert check(lamp()) == []
    assert check(lamp(watts=100, colour="Cold", room="Küche", limit=Quantity("2Gi"), names=["a"])) == []


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"watts": 0}, "spec.watts: Invalid value: 0: spec.watts in body should be greater than or equal to 1"),
        ({"colour": "Hot"}, 'spec.colour: Unsupported value: "Hot": supported values: "Warm", "Cold"'),
        ({"room": "7"}, r'spec.room: Invalid value: "7": spec.room in body should match '),
        ({"watts": "40"}, "spec.watts: Invalid value: "),
    ],
)
def test_a_wrong_value_is_named_as_the_server_names_it(spec: dict[str, Any], fault: str) -> None:
    (found,) = check(lamp(**spec))
    assert str(found).startswith(fault)


def test_those_who_want_an_error_get_the_servers() -> None:
    require_valid(lamp())
    with pytest.raises(Invalid, match=r'Lamp.example.com "desk" is invalid: \[spec.colour.*spec.watts') as caught:
        require_valid(lamp(watts=0, colour="Hot"))
    assert {cause.field for cause in caught.value.causes} == {"spec.watts", "spec.colour"}


def test_built_in_kinds_are_checked_against_kubernetes_schemas() -> None:
    pod = Pod(metadata=ObjectMeta(name="a"), spec=PodSpec(containers=[Container(name="a", image="b")]))
    assert check(pod) == []
    pod.spec.termination_grace_period_seconds = cast("int", "soon")
    assert [fault.field for fault in check(pod)] == ["spec.terminationGracePeriodSeconds"]
