"""Managers after updates and applies: properties that hold for any objects, and what only several versions and filters show."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.merge.fields import (
    ApplyConflict,
    FieldSet,
    MergeType,
    MissingVersion,
    VersionedSet,
    apply,
    compare,
    custom_type,
    excluding,
    extract,
    field_set,
    including,
    merge,
    remove,
    update,
)
from kubeloop.merge.fields.comparison import equal
from kubeloop.merge.fields.field_set import ANY
from kubeloop.merge.fields.managers import reconcile
from kubeloop.schema.structural import parse
from kubeloop.types import JSONObject
from tests.effort import effort
from tests.merge.fields.things import SCHEMA, THING

Managers = dict[str, VersionedSet]


class OneVersion:
    def type_of(self, api_version: str) -> MergeType:
        if api_version != "v1":
            raise MissingVersion(api_version)
        return THING

    def convert(self, obj: JSONObject, api_version: str) -> JSONObject:
        self.type_of(api_version)
        return obj


ONE = OneVersion()


def owns(document: JSONObject, *, applied: bool = True, version: str = "v1") -> VersionedSet:
    return VersionedSet(FieldSet.from_json(document), version, applied)


def shown(managers: Managers) -> JSONObject:
    return {name: owned.set.to_json() for name, owned in managers.items()}


WORDS = st.sampled_from(["a", "b", "c"])
SMALL = st.integers(0, 3)
TEXTS: st.SearchStrategy[JSONObject] = st.dictionaries(WORDS, WORDS, min_size=1, max_size=3)


def items(strategy: st.SearchStrategy[JSONObject], key: str) -> st.SearchStrategy[list[JSONObject]]:
    return st.lists(strategy, min_size=1, max_size=3, unique_by=lambda item: str(item.get(key)))


THINGS: st.SearchStrategy[JSONObject] = st.fixed_dictionaries(
    {},
    optional={
        "number": SMALL,
        "text": WORDS,
        "set": st.lists(WORDS, min_size=1, max_size=3, unique=True),
        "atomic": st.lists(st.fixed_dictionaries({"a": WORDS}), max_size=2),
        "map": items(st.fixed_dictionaries({"name": WORDS}, optional={"value": SMALL, "labels": TEXTS}), "name"),
        "ports": items(st.fixed_dictionaries({"port": SMALL}, optional={"name": WORDS}), "port"),
        "granular": TEXTS,
        "whole": TEXTS,
        "struct": st.fixed_dictionaries({"b": st.fixed_dictionaries({"c": SMALL})}, optional={"a": WORDS}),
        "free": st.dictionaries(WORDS, st.one_of(SMALL, st.lists(SMALL, max_size=2), TEXTS), min_size=1, max_size=2),
    },
)


@given(THINGS, THINGS)
def test_merging_twice_is_merging_once(live: JSONObject, applied: JSONObject) -> None:
    merged = merge(live, applied, THING)
    assert equal(merge(merged, applied, THING), merged)


@given(THINGS)
def test_merging_into_nothing_gives_the_applied_object(applied: JSONObject) -> None:
    assert merge({}, applied, THING) == applied


@given(THINGS, THINGS)
def test_a_merged_object_has_every_field_of_what_was_applied(live: JSONObject, applied: JSONObject) -> None:
    assert not field_set(applied, THING) - field_set(merge(live, applied, THING), THING)


@given(THINGS)
def test_an_object_taken_by_all_its_fields_is_itself(obj: JSONObject) -> None:
    assert extract(obj, field_set(obj, THING), THING) == obj


@given(THINGS)
def test_an_object_without_its_fields_owns_nothing(obj: JSONObject) -> None:
    left = remove(obj, field_set(obj, THING), THING)
    assert all(value is None or value == {"b": None} for value in left.values())


@given(THINGS, THINGS)
def test_an_object_that_is_equal_does_not_differ(old: JSONObject, new: JSONObject) -> None:
    assert not compare(old, copy.deepcopy(old), THING)
    there, back = compare(old, new, THING), compare(new, old, THING)
    assert (there.added, there.removed) == (back.removed, back.added)


@given(THINGS, THINGS)
def test_changed_fields_are_fields_of_the_state_they_are_in(old: JSONObject, new: JSONObject) -> None:
    change = compare(old, new, THING)
    assert not change.added.leaves() - field_set(new, THING)
    assert not change.removed.leaves() - field_set(old, THING)


@settings(max_examples=effort(short=75, long=600))
@given(THINGS, THINGS)
def test_applied_fields_are_owned_and_applying_again_changes_nothing(live: JSONObject, applied: JSONObject) -> None:
    merged, managers = apply(live, applied, "v1", {}, "me", ONE)
    merged = live if merged is None else merged
    assert managers.get("me", owns({})).set == field_set(applied, THING)
    again, after = apply(merged, applied, "v1", managers, "me", ONE)
    assert (again, after) == (None, managers)


@settings(max_examples=effort(short=75, long=600))
@given(THINGS, THINGS)
def test_fields_that_are_no_longer_applied_are_removed(first: JSONObject, second: JSONObject) -> None:
    merged, managers = apply({}, first, "v1", {}, "me", ONE)
    replaced, managers = apply(merged or {}, second, "v1", managers, "me", ONE)
    left = merged or {} if replaced is None else replaced
    # Alone, an applier gets what it says, but that emptied containers are null and that live items come first.
    gone = field_set(left, THING) - field_set(second, THING)
    assert all(obj is None for path in gone for obj in [_at(left, path)])
    assert not field_set(second, THING) - field_set(left, THING)


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for element in path:
        obj = obj[element.removeprefix("f:")]
    return obj


@settings(max_examples=effort(short=75, long=600))
@given(THINGS, THINGS, THINGS)
def test_missing_fields_have_no_owner(first: JSONObject, second: JSONObject, third: JSONObject) -> None:
    merged, managers = apply({}, first, "v1", {}, "a", ONE)
    merged2, managers = apply(merged or {}, second, "v1", managers, "b", ONE, force=True)
    live = (merged or {}) if merged2 is None else merged2
    managers = update(live, third, "v1", managers, "c", ONE)
    there = field_set(third, THING)
    for owned in managers.values():
        assert not owned.set.leaves() - there


@settings(max_examples=effort(short=75, long=600))
@given(THINGS, THINGS)
def test_an_update_back_and_forth_makes_the_last_writer_own_what_differed(old: JSONObject, new: JSONObject) -> None:
    managers = update({}, old, "v1", {}, "a", ONE)
    managers = update(old, new, "v1", managers, "b", ONE)
    change = compare(old, new, THING)
    assert managers.get("b", owns({})).set == change.added | change.modified
    assert not managers.get("a", owns({})).set & (change.added | change.modified | change.removed)


@given(THINGS, THINGS)
def test_a_refused_apply_changes_nothing_and_force_takes_all_of_it(live: JSONObject, applied: JSONObject) -> None:
    managers = update({}, live, "v1", {}, "a", ONE)
    before = copy.deepcopy(live), dict(managers)
    try:
        apply(live, applied, "v1", managers, "b", ONE)
    except ApplyConflict as refused:
        assert (live, managers) == before
        wanted = {conflict.path for conflict in refused.conflicts}
        _, after = apply(live, applied, "v1", managers, "b", ONE, force=True)
        assert not wanted & set(after.get("a", owns({})).set)
        assert wanted


def test_conflicts_name_manager_and_field() -> None:
    managers = {"a": owns({"f:map": {'k:{"name":"x"}': {".": {}, "f:name": {}, "f:value": {}}}})}
    with pytest.raises(ApplyConflict, match=r"Apply failed with 1 conflict$") as refused:
        apply({"map": [{"name": "x", "value": 1}]}, {"map": [{"name": "x", "value": 2}]}, "v1", managers, "b", ONE)
    assert [(conflict.manager, conflict.field) for conflict in refused.value.conflicts] == [("a", '.map[name="x"].value')]


def test_managers_of_versions_that_are_gone_are_forgotten() -> None:
    managers = {"old": owns({"f:number": {}}, version="v0"), "a": owns({"f:text": {}})}
    assert shown(update({"text": "x"}, {"text": "x", "number": 1}, "v1", managers, "b", ONE)) == {
        "a": {"f:text": {}},
        "b": {"f:number": {}},
    }


def test_an_applier_whose_last_version_is_gone_removes_nothing() -> None:
    managers = {"me": owns({"f:number": {}}, version="v0")}
    merged, after = apply({"number": 1}, {"text": "x"}, "v1", managers, "me", ONE)
    assert merged == {"number": 1, "text": "x"}
    assert shown(after) == {"me": {"f:text": {}}}


# Several versions


NEWER = custom_type(parse({**SCHEMA, "properties": {**SCHEMA["properties"], "amount": {"type": "integer"}}}))


class TwoVersions:
    """In v2 ``number`` is called ``amount``."""

    def type_of(self, api_version: str) -> MergeType:
        return {"v1": THING, "v2": NEWER}[api_version]

    def convert(self, obj: JSONObject, api_version: str) -> JSONObject:
        if obj.get("apiVersion") == api_version:
            return obj
        names = {"number": "amount"} if api_version == "v2" else {"amount": "number"}
        return {names.get(name, name): value for name, value in obj.items()} | {"apiVersion": api_version}


TWO = TwoVersions()


def test_a_change_takes_fields_from_managers_of_another_version_under_its_name_there() -> None:
    managers = {"other": owns({"f:amount": {}, "f:text": {}}, version="v2")}
    live: JSONObject = {"apiVersion": "v1", "number": 1, "text": "x"}
    after = update(live, {**live, "number": 2}, "v1", managers, "me", TWO)
    assert shown(after) == {"other": {"f:text": {}}, "me": {"f:number": {}}}


def test_conflicts_are_reported_in_the_owners_version() -> None:
    managers = {"other": owns({"f:amount": {}}, version="v2")}
    with pytest.raises(ApplyConflict) as refused:
        apply({"apiVersion": "v1", "number": 1}, {"apiVersion": "v1", "number": 2}, "v1", managers, "me", TWO)
    assert [conflict.field for conflict in refused.value.conflicts] == [".amount"]


def test_what_another_version_owns_is_not_pruned() -> None:
    live: JSONObject = {"apiVersion": "v1", "number": 1, "text": "x"}
    managers = {"me": owns({"f:number": {}, "f:text": {}}), "other": owns({"f:amount": {}}, version="v2")}
    merged, after = apply(live, {"apiVersion": "v1"}, "v1", managers, "me", TWO)
    assert merged == {"apiVersion": "v1", "number": 1}
    assert shown(after) == {"other": {"f:amount": {}}, "me": {"f:apiVersion": {}}}


def test_an_applier_may_change_its_version() -> None:
    live: JSONObject = {"apiVersion": "v2", "amount": 1, "text": "x"}
    managers = {"me": owns({"f:number": {}, "f:text": {}})}
    merged, after = apply(live, {"apiVersion": "v2", "amount": 1}, "v2", managers, "me", TWO)
    assert merged == {"apiVersion": "v2", "amount": 1}
    assert {name: owned.api_version for name, owned in after.items()} == {"me": "v2"}


# Filters


def test_excluded_fields_are_never_owned_nor_in_conflict() -> None:
    filters = {"v1": excluding(FieldSet.from_paths(("f:struct",)))}
    managers = {"a": owns({"f:struct": {"f:a": {}}, "f:number": {}})}
    live = {"struct": {"a": "1"}, "number": 1}
    after = update(live, {"struct": {"a": "2"}, "number": 2}, "v1", managers, "b", ONE, filters)
    assert shown(after) == {"a": {"f:struct": {"f:a": {}}}, "b": {"f:number": {}}}
    _, applied = apply(live, {"struct": {"a": "3"}, "text": "x"}, "v1", managers, "b", ONE, filters)
    assert shown(applied) == {"a": {"f:number": {}, "f:struct": {"f:a": {}}}, "b": {"f:text": {}}}


@pytest.mark.parametrize(
    ("patterns", "kept"),
    [
        pytest.param([("f:number",)], {"f:number": {}}, id="a field"),
        pytest.param([("f:struct",)], {"f:struct": {"f:a": {}, "f:b": {"f:c": {}}}}, id="with the fields below it"),
        pytest.param([("f:struct", "f:b")], {"f:struct": {"f:b": {"f:c": {}}}}, id="not the fields beside it"),
        pytest.param(
            [("f:map", ANY, "f:value")],
            {"f:map": {'k:{"name":"x"}': {".": {}, "f:value": {}}, 'k:{"name":"y"}': {".": {}, "f:value": {}}}},
            id="in any item, which counts itself",
        ),
        pytest.param([("f:text",), ("f:text", "f:z"), ("f:number",)], {"f:number": {}}, id="a longer pattern adds nothing"),
        pytest.param([("f:map", 'k:{"name":"x"}', "f:labels")], {"f:map": {'k:{"name":"x"}': {}}}, id="what leads to a pattern counts"),
    ],
)
def test_including(patterns: list[tuple[str, ...]], kept: JSONObject) -> None:
    obj = {"number": 1, "struct": {"a": "1", "b": {"c": 1}}, "map": [{"name": "x", "value": 1}, {"name": "y", "value": 2}]}
    assert including(*patterns)(field_set(obj, THING)).to_json() == kept


# Schemas that changed


def test_owners_of_parts_own_the_whole_once_it_is_atomic() -> None:
    properties = copy.deepcopy(SCHEMA["properties"])
    properties["granular"]["x-kubernetes-map-type"] = "atomic"
    properties["set"]["x-kubernetes-list-type"] = "atomic"
    atomic = custom_type(parse({**SCHEMA, "properties": properties}))
    fields = FieldSet.from_json({"f:granular": {"f:a": {}}, "f:set": {'v:"a"': {}}, "f:struct": {"f:a": {}}})
    assert reconcile(fields, atomic).to_json() == {"f:granular": {}, "f:set": {}, "f:struct": {"f:a": {}}}
    assert reconcile(fields, THING) is fields
