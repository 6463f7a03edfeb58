"""Functions of field management: names, entries, the limit on updaters, times, and replicas through a Scale."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.apiserver.ownership import manager_of, restore_times, restore_valid_entries
from kubeloop.apiserver.ownership.entries import (
    APPLY,
    UPDATE,
    InvalidEntries,
    ManagedFields,
    decode,
    encode,
    identifier,
    is_reset,
    to_parent,
    to_scale,
)
from kubeloop.apiserver.ownership.managers import cap_updaters
from kubeloop.merge.fields import FieldSet
from kubeloop.merge.fields.managers import VersionedSet


def entry(manager: str = "one", fields: tuple[str, ...] = ("k",), **more: Any) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {f"f:{name}": {} for name in fields}},
        **more,
    }


@pytest.mark.parametrize(
    ("field_manager", "user_agent", "expected"),
    [
        pytest.param("me", "kubectl/v1", "me", id="the field manager that the request names"),
        pytest.param("", "kubectl/v1.36 (linux/amd64)", "kubectl", id="else what stands before the slash of the user agent"),
        pytest.param("", "curl", "curl", id="a user agent without a slash is taken whole"),
        pytest.param("", "a\tb\x07c/1", "abc", id="what cannot be printed is left out"),
        pytest.param("", "ü" * 100, "ü" * 64, id="at most 128 bytes, no letter halved"),
        pytest.param("", "", "unknown", id="a request without field manager and user agent"),
        pytest.param("", "/v1", "unknown", id="a user agent without a name"),
    ],
)
def test_the_writing_manager_is(field_manager: str, user_agent: str, expected: str) -> None:
    assert manager_of(field_manager, user_agent) == expected


def test_entries_come_back_in_order_appliers_first_then_by_time_and_name() -> None:
    entries = [
        entry("b", time="2026-01-01T00:00:01Z"),
        entry("c"),
        entry("a", subresource="status"),
        entry("z", operation="Apply", time="2027-01-01T00:00:00Z"),
    ]
    assert [one["manager"] for one in encode(decode(entries))] == ["z", "a", "c", "b"]


def test_of_two_entries_of_one_manager_the_later_counts() -> None:
    assert encode(decode([entry(), entry(fields=("l",))])) == [entry(fields=("l",))]


def test_an_applier_is_one_manager_in_all_versions_an_updater_is_not() -> None:
    assert identifier("one", APPLY, "v1", "") == identifier("one", APPLY, "v2", "") == '{"manager":"one","operation":"Apply"}'
    assert identifier("one", UPDATE, "v1", "") != identifier("one", UPDATE, "v2", "")


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        pytest.param([entry(operation="Bad")], "operation must be `Apply` or `Update`", id="another operation"),
        pytest.param([entry(apiVersion="")], "apiVersion must not be empty", id="no version"),
        pytest.param([entry(), entry(fieldsType="")], "missing fieldsType in managed fields entry 1", id="no type of fields"),
        pytest.param([entry(fieldsType="V2")], 'invalid fieldsType "V2" in managed fields entry 0', id="another type of fields"),
    ],
)
def test_entries_cannot_be_read_that_have(entries: list[dict[str, Any]], text: str) -> None:
    with pytest.raises(InvalidEntries) as raised:
        decode(entries)
    assert str(raised.value) == text


def test_an_empty_list_and_one_empty_entry_are_resets() -> None:
    assert is_reset([])
    assert is_reset([{}])
    assert not is_reset(None)
    assert not is_reset([{}, {}])
    assert not is_reset([entry()])


def updaters(count: int, version: str = "v1") -> ManagedFields:
    managed = ManagedFields()
    for number in range(count):
        manager = identifier(f"m{number:02}", UPDATE, version, "")
        managed.fields[manager] = VersionedSet(FieldSet.from_paths((f"f:k{number}",)), version, False)
        managed.times[manager] = f"2026-01-01T00:00:{number:02}Z"
    return managed


def test_ten_managers_that_update_stay_as_they_are() -> None:
    managed = updaters(10)
    cap_updaters(managed)
    assert len(managed.fields) == 10


def test_beyond_ten_the_oldest_share_an_entry_whose_time_is_the_latest_of_theirs() -> None:
    managed = updaters(13)
    cap_updaters(managed)
    bucket = identifier("ancient-changes", UPDATE, "v1", "")
    assert len(managed.fields) == 10
    assert managed.fields[bucket].set == FieldSet.from_paths(("f:k0",), ("f:k1",), ("f:k2",), ("f:k3",))
    assert managed.times[bucket] == "2026-01-01T00:00:03Z"


def test_managers_of_different_versions_do_not_share_an_entry() -> None:
    managed = updaters(10)
    other = identifier("old", UPDATE, "v0", "")
    managed.fields[other] = VersionedSet(FieldSet.from_paths(("f:k",)), "v0", False)
    managed.times[other] = None
    cap_updaters(managed)
    assert other in managed.fields
    assert identifier("ancient-changes", UPDATE, "v1", "") in managed.fields
    assert len(managed.fields) == 10


def test_a_write_that_changes_only_times_changes_nothing() -> None:
    old = {"metadata": {"managedFields": [entry()]}}
    new = {"metadata": {"managedFields": [entry(time="2027-01-01T00:00:00Z")]}}
    assert restore_times(old, new, lambda: new == old)
    assert new == old
    other = {"metadata": {"managedFields": [entry(time="2027-01-01T00:00:00Z")], "labels": {"a": "b"}}}
    assert not restore_times(old, other, lambda: other == old)
    assert other["metadata"]["managedFields"] == [entry(time="2027-01-01T00:00:00Z")]


def test_managed_fields_that_admission_broke_are_taken_back_with_a_warning() -> None:
    metadata: dict[str, Any] = {"managedFields": [{"manager": "x"}]}
    warnings: list[str] = []
    restore_valid_entries(metadata, [entry()], warnings)
    assert metadata == {"managedFields": [entry()]}
    assert warnings == [
        (
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission "
            "controller; please fix your requests: operation must be `Apply` or `Update`"
        )
    ]


PATHS = {"apps/v1": ("f:spec", "f:replicas"), "example.com/v1": None}


def scaled(manager: str, **more: Any) -> dict[str, Any]:
    return {**entry(manager, apiVersion="apps/v1"), "fieldsV1": {"f:spec": {"f:replicas": {}, "f:paused": {}}}, **more}


def test_a_scale_shows_the_owner_of_replicas() -> None:
    shown = to_scale([scaled("one"), entry("two", apiVersion="apps/v1"), scaled("three", apiVersion="gone/v1")], PATHS)
    assert shown == [entry("one", apiVersion="autoscaling/v1", fieldsV1={"f:spec": {"f:replicas": {}}})]


def test_a_write_to_scale_takes_replicas_from_their_owner() -> None:
    scale = [{**entry("two", apiVersion="autoscaling/v1", subresource="scale"), "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
    after = to_parent([scaled("one"), entry("old", apiVersion="gone/v1")], scale, PATHS, "apps/v1")
    taken = entry("two", apiVersion="apps/v1", subresource="scale", fieldsV1={"f:spec": {"f:replicas": {}}})
    del taken["time"]
    assert after == [taken, entry("one", apiVersion="apps/v1", fieldsV1={"f:spec": {"f:paused": {}}})]
