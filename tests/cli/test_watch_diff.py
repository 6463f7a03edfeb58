"""The differences between two states of an object, and how they are written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.cli.watch_view.diff import FieldDifference, changes, without_noise
from kubeloop.cli.watch_view.text import lines
from kubeloop.codec.redact_secrets import masked, plain

JSON = dict[str, Any]


def written(before: JSON, after: JSON) -> list[str]:
    return ["".join(text for text, _ in line) for change in changes(before, after) for line in lines(change)]


def pod(**status: Any) -> JSON:
    return {"kind": "Pod", "status": status}


READY: JSON = {"type": "Ready", "status": "True"}
INITIALIZED: JSON = {"type": "Initialized", "status": "True"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param({"a": 1}, {"a": 1}, [], id="equal objects have no differences"),
        pytest.param(
            pod(phase="Pending"), pod(phase="Running"), ["status.phase: Pending -> Running"], id="a changed field shows both values"
        ),
        pytest.param(
            {"metadata": {}},
            {"metadata": {"labels": {"app": "web", "tier": "front"}}},
            ["metadata.labels.app: + web", "metadata.labels.tier: + front"],
            id="a new map is shown field by field",
        ),
        pytest.param(
            {"metadata": {"labels": {"app": "web"}}}, {"metadata": {}}, ["metadata.labels.app: - web"], id="a vanished flat map too"
        ),
        pytest.param(
            {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1}}}},
            {"spec": {}},
            ['spec.strategy: - {"rollingUpdate":{"maxSurge":1}}'],
            id="a vanished deep map is shown as a whole",
        ),
        pytest.param(
            {"metadata": {"labels": {}}},
            {"metadata": {"labels": {"app.kubernetes.io/name": "web"}}},
            ["metadata.labels[app.kubernetes.io/name]: + web"],
            id="a name with dots stands in brackets",
        ),
        pytest.param(
            pod(conditions=[INITIALIZED, READY]),
            pod(conditions=[INITIALIZED, {"type": "Ready", "status": "False"}]),
            ["status.conditions[Ready].status: True -> False"],
            id="conditions are compared by their type",
        ),
        pytest.param(
            pod(conditions=[READY]),
            pod(conditions=[INITIALIZED, READY]),
            ["status.conditions[Initialized]: + True"],
            id="an item that came first does not move the others",
        ),
        pytest.param(
            pod(),
            pod(conditions=[INITIALIZED, {"type": "Ready", "status": "False", "reason": "NotReady", "message": "no [app]"}]),
            ["status.conditions[Initialized]: + True", "status.conditions[Ready]: + False (NotReady: no [app])"],
            id="new conditions are shown with status and reason",
        ),
        pytest.param(
            {},
            {"env": [{"name": "A", "value": "1"}]},
            ['env[A]: + {"name":"A","value":"1"}'],
            id="a new list is shown item by item if its items have names",
        ),
        pytest.param(
            {"env": [{"name": "A"}, {"name": "B"}]},
            {"env": [{"name": "B"}, {"name": "A"}]},
            ["env: order A, B -> B, A"],
            id="items that only changed places are shown as an order",
        ),
        pytest.param(
            {"ports": [{"port": 80}, {"port": 81, "x": 1}]},
            {"ports": [{"port": 80}, {"port": 81, "x": 2}]},
            ["ports[81].x: 1 -> 2"],
            id="a number may be what names an item",
        ),
        pytest.param(
            {"rules": [{"verbs": ["get"]}, {"verbs": ["get"]}]},
            {"rules": [{"verbs": ["get"]}, {"verbs": ["list"]}]},
            ["rules[1].verbs: - get", "rules[1].verbs: + list"],
            id="items without a name are compared by position",
        ),
        pytest.param(
            {"items": [{"name": "a"}, {"name": "a"}]},
            {"items": [{"name": "a"}]},
            ['items[1]: - {"name":"a"}'],
            id="a name that two items share names none",
        ),
        pytest.param(
            {"finalizers": ["a", "b"]}, {"finalizers": ["b", "c"]}, ["finalizers: - a", "finalizers: + c"], id="lists of words are sets"
        ),
        pytest.param(
            {"args": ["a", "b"]}, {"args": ["b", "a"]}, ['args: ["a","b"] -> ["b","a"]'], id="unless what stayed changed its order"
        ),
        pytest.param({"l": [1, 2]}, {"l": [1, 3]}, ["l: [1,2] -> [1,3]"], id="lists of numbers are shown as a whole"),
        pytest.param({"a": 1}, {"a": True}, ["a: 1 -> true"], id="true is not one"),
        pytest.param({"a": None}, {}, ["a: - null"], id="null is something else than nothing"),
        pytest.param({}, {"a": {}}, ["a: + {}"], id="an empty map is something"),
        pytest.param({"a": "true"}, {"a": True}, ['a: "true" -> true'], id="text that looks like JSON is quoted"),
        pytest.param({"a": ""}, {"a": " x"}, ['a: "" -> " x"'], id="empty and padded text is quoted"),
        pytest.param(
            {"a": "1\n2\n3"}, {"a": "1\nb\n3\n4"}, ["a: -1 +2 lines", "  - 2", "  + b", "  + 4"], id="of a text only its changed lines"
        ),
        pytest.param({"a": "x\n"}, {"a": "x"}, ['a: "x\\n" -> x'], id="a lost end of line is shown"),
        pytest.param({"a": "n"}, {"a": "x" * 300}, [f"a: n -> {'x' * 100}… (300 characters)"], id="a long value is cut off and counted"),
        pytest.param({"a": "n"}, {"a": "\x1b[31mred\x07"}, ["a: n -> \\x1b[31mred\\x07"], id="what a terminal would obey is escaped"),
        pytest.param({"a": "n\n" * 1500}, {"a": "m\n" * 1500}, ["a: 1500 lines -> 1500 lines"], id="texts too long to compare are counted"),
    ],
)
def test_differences_are_written_so(before: JSON, after: JSON, expected: list[str]) -> None:
    assert written(before, after) == expected


def test_what_every_write_changes_is_noise() -> None:
    applied = "kubectl.kubernetes.io/last-applied-configuration"
    before = {"metadata": {"name": "a", "resourceVersion": "1", "managedFields": [1], "annotations": {applied: "{}", "x": "y"}}}
    assert without_noise(before) == {"metadata": {"name": "a", "annotations": {"x": "y"}}}
    assert before["metadata"]["resourceVersion"] == "1"
    assert without_noise({"spec": {}}) == {"spec": {}}
    assert without_noise({"metadata": {"annotations": None}}) == {"metadata": {"annotations": None}}


SECRET: JSON = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "s", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"data":{"password":"aHVudGVyMg=="}}'}},
    "data": {"password": "aHVudGVyMg==", "user": "YQ=="},
}


def test_values_of_a_secret_are_never_written_only_that_they_changed() -> None:
    after = {**SECRET, "data": {"password": "aHVudGVyMw==", "token": "eA=="}}
    assert written(masked(SECRET), masked(after)) == ["data.password: *** changed", "data.user: - ***", "data.token: + ***"]
    assert written(masked(SECRET), masked(SECRET)) == []
    assert written({}, masked(SECRET))[-2:] == ["data.password: + ***", "data.user: + ***"]


def test_neither_are_they_in_what_programs_read() -> None:
    assert "aHVudGVy" not in repr(plain(masked(SECRET)))
    assert plain(masked(SECRET))["data"] == {"password": "***", "user": "***"}
    assert masked({"apiVersion": "v1", "kind": "Secret", "data": None})["data"] is not None
    assert masked(pod(phase="x")) == pod(phase="x")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b", "true"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "type", "a", "b.c"]), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3))
def test_there_are_differences_exactly_where_the_json_differs(before: JSON, after: JSON) -> None:
    import msgspec

    found = changes(before, after)
    same = msgspec.json.encode(before, order="deterministic") == msgspec.json.encode(after, order="deterministic")
    assert (found == []) is same
    assert changes(before, before) == []
    for change in found:
        assert isinstance(change, FieldDifference)
        assert list(lines(change))
