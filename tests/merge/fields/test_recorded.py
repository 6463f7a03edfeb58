"""The owners of all fields after each of a hundred writes, as a Kubernetes 1.36 API server recorded it (``recorded.json``).

Each case is one object's life. A step tells what was applied or what the object became, and who owned what then.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kubeloop.merge.fields import (
    ApplyConflict,
    FieldSet,
    MergeType,
    VersionedSet,
    apply,
    builtin_types,
    check,
    custom_type,
    extract,
    field_set,
    update,
)
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema.structural import parse
from kubeloop.types import JSONObject

Managers = dict[tuple[str, str, str], VersionedSet]

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
SCHEMAS = {name: custom_type(parse(schema)) for name, schema in RECORDED["schemas"].items()}
#: Fields without an owner: an API server leaves them out of every set.
NEVER_OWNED = FieldSet.from_paths(
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", f"f:{name}")
        for name in ("name", "namespace", "creationTimestamp", "uid", "generation", "managedFields", "resourceVersion")
    ),
)


class Kind:
    """The versions of one kind, which differ in nothing but their name."""

    def __init__(self, kind: str, type_: MergeType | None) -> None:
        self.kind = kind
        self.type = type_

    def type_of(self, api_version: str) -> MergeType:
        if self.type is not None:
            return self.type
        group, _, version = api_version.rpartition("/")
        found = builtin_types().of_kind(GroupVersionKind(group, version, self.kind))
        assert found is not None
        return found

    def convert(self, obj: JSONObject, api_version: str) -> JSONObject:
        return obj if obj.get("apiVersion") == api_version else {**obj, "apiVersion": api_version}


def owners_of(managers: Managers) -> list[list[Any]]:
    found = [[key[0], key[1], owned.api_version, (owned.set - NEVER_OWNED).to_json()] for key, owned in managers.items()]
    return sorted((one for one in found if one[3]), key=json.dumps)


def managers_of(owners: list[list[Any]]) -> Managers:
    # An applier is one manager in all versions.
    return {
        (name, operation, "" if operation == "Apply" else version): VersionedSet(FieldSet.from_json(fields), version, operation == "Apply")
        for name, operation, version, fields in owners
    }


def within(part: Any, tree: Any) -> bool:
    """Whether ``tree`` has every value of ``part``; defaults may have joined them."""
    if isinstance(part, dict):
        return isinstance(tree, dict) and all(name in tree and within(value, tree[name]) for name, value in part.items())
    if isinstance(part, list):
        return isinstance(tree, list) and len(part) == len(tree) and all(map(within, part, tree))
    return bool(part == tree)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["title"]) for case in RECORDED["cases"]])
def test_owners_are_the_recorded_owners_of_kubernetes(case: JSONObject) -> None:
    kind = Kind(case["kind"], SCHEMAS["before"] if case["kind"] == "Thing" else None)
    live: JSONObject = {}
    managers: Managers = {}
    for number, step in enumerate(case["steps"], 1):
        where = f"step {number}"
        version = step.get("apiVersion", "")
        live = kind.convert(live, version) if live else {"apiVersion": version, "kind": case["kind"]}
        match step["op"]:
            case "schema":
                kind.type = SCHEMAS["after"]
                live = kind.convert(live, "fields.example.com/v1")
            case "apply" if "conflicts" in step:
                with pytest.raises(ApplyConflict) as refused:
                    apply(live, step["body"], version, managers, (step["manager"], "Apply", ""), kind)
                assert sorted(conflict.field for conflict in refused.value.conflicts) == step["conflicts"], where
            case "apply":
                check(step["body"], kind.type_of(version))
                key = (step["manager"], "Apply", "")
                merged, after = apply(live, step["body"], version, managers, key, kind, force=step.get("force", False))
                merged = live if merged is None else merged
                if "null" in step:
                    # The server refused it: what lost all of its items is left as null.
                    assert merged[step["null"]] is None, where
                    continue
                assert within({**merged, "metadata": step["object"]["metadata"]}, step["object"]), where
                assert owners_of(after) == sorted(step["owners"], key=json.dumps), where
                live, managers = step["object"], managers_of(step["owners"])
            case _:
                after = update(live, step["object"], version, managers, (step["manager"], "Update", version), kind)
                assert owners_of(after) == sorted(step["owners"], key=json.dumps), where
                live, managers = step["object"], managers_of(step["owners"])


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, id=f"{case['title']}, step {number}")
        for case in RECORDED["cases"]
        for number, step in enumerate(case["steps"], 1)
        if case["kind"] != "Thing" and step["op"] == "apply" and "owners" in step
    ],
)
def test_what_an_applier_extracts_owns_what_it_applied(step: JSONObject) -> None:
    version, kind = step["apiVersion"], step["body"]["kind"]
    type_ = Kind(kind, None).type_of(version)
    mine = [fields for name, operation, _, fields in step["owners"] if (name, operation) == (step["manager"], "Apply")]
    owned = FieldSet.from_json(mine[0]) if mine else FieldSet()
    extracted = extract(step["object"], owned, type_)
    given = field_set(extracted, type_) - NEVER_OWNED
    assert owned - given == FieldSet()
    # Keys that were left out to their defaults come along: without them an item would be another one.
    assert all(path[-1].removeprefix("f:") in path[-2] for path in given - owned)
