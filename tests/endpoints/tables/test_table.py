"""The frame around cells: metadata, embedded objects, partial objects, durations."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.endpoints.tables import human_duration, partial_list, partial_object, table
from kubeloop.endpoints.tables.layout import TableColumn, age
from kubeloop.meta.kinds import GroupResource

OBJECT = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "resourceVersion": "7"}, "type": "Opaque", "data": {"k": "dg=="}}


SECRETS = GroupResource("", "secrets")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        pytest.param(-5, "<invalid>", id="a time that lies ahead is invalid"),
        pytest.param(-1, "0s", id="a clock that is one second ahead is let pass"),
        pytest.param(0, "0s", id="nothing is zero seconds"),
        pytest.param(119, "119s", id="up to two minutes are seconds"),
        pytest.param(120, "2m", id="whole minutes show no seconds"),
        pytest.param(190, "3m10s", id="up to ten minutes show seconds"),
        pytest.param(660, "11m", id="beyond ten minutes seconds go"),
        pytest.param(3 * 3600, "3h", id="whole hours show no minutes"),
        pytest.param(5 * 3600 + 120, "5h2m", id="up to eight hours show minutes"),
        pytest.param(9 * 3600 + 120, "9h", id="beyond eight hours minutes go"),
        pytest.param(50 * 3600, "2d2h", id="up to eight days show hours"),
        pytest.param(10 * 86400, "10d", id="beyond eight days hours go"),
        pytest.param(800 * 86400, "2y70d", id="up to eight years show days"),
        pytest.param(3000 * 86400, "8y", id="beyond eight years days go"),
    ],
)
def test_duration(seconds: float, shown: str) -> None:
    assert human_duration(seconds) == shown


def test_an_age_without_a_time_is_unknown() -> None:
    assert age(None, 0) == "<unknown>"


def test_an_age_of_something_else_is_what_the_caller_says() -> None:
    assert age("soon", 0, invalid="<invalid>") == "<invalid>"


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        pytest.param("", partial_object(OBJECT), id="rows carry metadata by default"),
        pytest.param("Metadata", partial_object(OBJECT), id="includeObject=Metadata carries metadata"),
        pytest.param("Object", OBJECT, id="includeObject=Object carries the whole object"),
        pytest.param("None", None, id="includeObject=None carries nothing"),
    ],
)
def test_included_object(include: str, expected: Any) -> None:
    assert table(SECRETS, [OBJECT], {}, now=0, include=include)["rows"][0]["object"] == expected


def test_a_table_keeps_the_lists_version_and_continue_token() -> None:
    metadata = {"resourceVersion": "9", "continue": "more", "remainingItemCount": 3, "selfLink": ""}
    assert table(SECRETS, [], metadata, now=0)["metadata"] == {
        "resourceVersion": "9",
        "continue": "more",
        "remainingItemCount": 3,
    }


def test_later_tables_of_a_watch_have_no_columns() -> None:
    assert table(SECRETS, [OBJECT], {}, now=0, headers=False)["columnDefinitions"] is None


def test_a_custom_resource_shows_its_own_columns() -> None:
    column = TableColumn("Double", "integer", "", "twice", 0, lambda obj, now: obj["x"] * 2 + int(now))
    made = table(GroupResource("example.com", "xs"), [{"metadata": {"name": "a"}, "x": 4}], {}, now=1, columns=[column])
    assert made["columnDefinitions"] == [{"name": "Double", "type": "integer", "format": "", "description": "twice", "priority": 0}]
    assert made["rows"][0]["cells"] == [9]


def test_a_partial_list_without_objects_has_null_items() -> None:
    assert partial_list([], {"resourceVersion": "3", "continue": ""}) == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "3"},
        "items": None,
    }
