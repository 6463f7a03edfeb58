"""Conditions: each one stands once, in its place, with a transition time that says when the status changed."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.api.meta.v1 import Condition
from kubeloop.controller.controllerutil.conditions import ConditionsError, get_condition, has_condition, remove_condition, set_condition
from kubeloop.meta import Model, ObjectMeta, Resource, Unstructured, custom_resource

EARLY = datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC)
LATE = datetime(2026, 1, 1, 13, tzinfo=UTC)


class FooStatus(Model):
    conditions: list[Condition] = msgspec.field(default_factory=list)


@custom_resource("conditions.example.com/v1", plural="foos")
class Foo(Resource):
    status: FooStatus = msgspec.field(default_factory=FooStatus)


@custom_resource("conditions.example.com/v1", plural="bars")
class Bar(Resource):
    """Its status is a pointer, as many generated ones are."""

    status: FooStatus | None = None


def typed() -> Resource:
    return Foo(metadata=ObjectMeta(name="a", generation=3))


def pointed() -> Resource:
    return Bar(metadata=ObjectMeta(name="a", generation=3))


def tree() -> Resource:
    metadata = {"name": "a", "generation": 3}
    return Unstructured.from_dict({"apiVersion": "conditions.example.com/v1", "kind": "Foo", "metadata": metadata})


everywhere = pytest.mark.parametrize("make", [typed, pointed, tree])


@everywhere
def test_a_condition_is_added_with_the_object_s_generation_and_the_time(make: Any) -> None:
    obj = make()
    assert set_condition(obj, "Ready", True, reason="AllUp", message="3 of 3", now=EARLY)
    found = get_condition(obj, "Ready")
    assert found is not None
    assert (found.status, found.reason, found.message, found.observed_generation) == ("True", "AllUp", "3 of 3", 3)
    assert found.last_transition_time == EARLY.replace(microsecond=0)


@everywhere
def test_the_transition_time_changes_with_the_status_only(make: Any) -> None:
    obj = make()
    set_condition(obj, "Ready", False, reason="Starting", now=EARLY)
    assert set_condition(obj, "Ready", False, reason="Pulling", now=LATE)
    found = get_condition(obj, "Ready")
    assert found is not None
    assert (found.reason, found.last_transition_time) == ("Pulling", EARLY.replace(microsecond=0))
    assert set_condition(obj, "Ready", True, reason="AllUp", now=LATE)
    found = get_condition(obj, "Ready")
    assert found is not None
    assert found.last_transition_time == LATE


@everywhere
def test_setting_the_same_again_changes_nothing(make: Any) -> None:
    obj = make()
    set_condition(obj, "Ready", True, reason="AllUp", now=EARLY)
    text = msgspec.json.encode(obj.to_dict())
    assert not set_condition(obj, "Ready", True, reason="AllUp", now=LATE)
    assert msgspec.json.encode(obj.to_dict()) == text


@everywhere
def test_conditions_keep_their_order_and_a_removed_one_leaves_the_others(make: Any) -> None:
    obj = make()
    for name in ("B", "A", "C"):
        set_condition(obj, name, None, reason="Unknown", now=EARLY)
    set_condition(obj, "A", True, reason="Known", now=LATE)
    assert [one["type"] for one in obj.to_dict()["status"]["conditions"]] == ["B", "A", "C"]
    assert remove_condition(obj, "A")
    assert not remove_condition(obj, "A")
    assert [one["type"] for one in obj.to_dict()["status"]["conditions"]] == ["B", "C"]


@everywhere
def test_a_condition_of_an_older_generation_does_not_hold(make: Any) -> None:
    obj = make()
    set_condition(obj, "Ready", True, reason="AllUp", observed_generation=2, now=EARLY)
    assert not has_condition(obj, "Ready")
    assert set_condition(obj, "Ready", True, reason="AllUp", now=LATE), "that it holds for a newer generation is a change"
    assert has_condition(obj, "Ready")
    assert not has_condition(obj, "Ready", False)
    assert not has_condition(obj, "Missing")


def test_what_only_the_server_knows_of_a_condition_stays() -> None:
    obj = tree()
    assert isinstance(obj, Unstructured)
    obj["status"] = {"conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "", "colour": "red"}]}
    set_condition(obj, "Ready", False, reason="R", now=LATE)
    (only,) = obj["status"]["conditions"]
    assert (only["colour"], only["status"]) == ("red", "False")


def test_conditions_of_older_kinds_have_their_own_fields() -> None:
    web = Deployment(metadata=ObjectMeta(name="web", generation=2))
    set_condition(web, "Available", True, reason="MinimumReplicas", now=EARLY)
    set_condition(web, "Available", True, reason="Other", now=LATE)
    (only,) = web.status.conditions
    assert (only.last_update_time, only.last_transition_time) == (LATE, EARLY.replace(microsecond=0))


def test_a_message_that_no_server_takes_is_cut() -> None:
    obj = typed()
    set_condition(obj, "Ready", False, reason="Failed", message="x" * 40_000)
    found = get_condition(obj, "Ready")
    assert found is not None
    assert len(found.message) == 32_768


@pytest.mark.parametrize(
    ("type_", "status", "reason", "says"),
    [
        pytest.param("Ready", "true", "Up", "True, False or Unknown", id="a status that is no word of the API is refused"),
        pytest.param("Ready", True, "not one word", "one word in CamelCase", id="a reason that is a sentence is refused"),
        pytest.param("Ready", True, "", "one word in CamelCase", id="a reason must be given"),
        pytest.param("Not ready", True, "Up", "of a condition", id="a type that is no name is refused"),
    ],
)
def test_what_no_server_takes(type_: str, status: Any, reason: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        set_condition(typed(), type_, status, reason=reason)


def test_the_error_for_a_kind_without_conditions_says_what_it_lacks() -> None:
    with pytest.raises(ConditionsError, match=r"ConfigMap has no status.conditions .* list\[Condition\]"):
        set_condition(ConfigMap(), "Ready", True, reason="Up")


class NeedyStatus(Model):
    phase: str
    conditions: list[Condition] = msgspec.field(default_factory=list)


@custom_resource("conditions.example.com/v1", plural="needies")
class Needy(Resource):
    status: NeedyStatus | None = None


def test_a_status_that_cannot_be_made_without_a_field_is_to_be_set_first() -> None:
    needy = Needy(metadata=ObjectMeta(name="a"))
    assert get_condition(needy, "Ready") is None
    wanted = r'^Needy "a" has no status yet, and a NeedyStatus cannot be made without phase: .* obj\.status = NeedyStatus\(phase=\.\.\.\)$'
    with pytest.raises(ConditionsError, match=wanted):
        set_condition(needy, "Ready", True, reason="Up")
    assert needy.status is None
    needy.status = NeedyStatus(phase="Up")
    assert set_condition(needy, "Ready", True, reason="Up")
    assert needy.to_dict()["status"]["conditions"][0]["message"] == "", "the schema of conditions requires it"
