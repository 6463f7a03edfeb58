"""The history of templates in ControllerRevisions: data, hashes and names as upstream's, which is found again, and which is deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubeloop.api.apps.v1 import ControllerRevision, DaemonSet, StatefulSet
from kubeloop.controlplane.workloads.history import (
    HASH_LABEL,
    encode_data,
    find_match,
    in_order,
    new_revision,
    next_number,
    revision_hash,
    revision_name,
    surplus_revisions,
    template_of,
    template_patch,
)
from kubeloop.controlplane.workloads.template import template_hash
from kubeloop.meta import ObjectMeta
from tests.controlplane.workloads import read

#: Objects and revisions of kube-controller-manager 1.36.3 on a real kube-apiserver.
RECORDED = [json.loads(line) for line in (Path(__file__).parent / "recorded_revisions.jsonl").read_text().splitlines()]


def owner_of(recorded: dict[str, Any]) -> StatefulSet | DaemonSet:
    metadata = {"name": recorded["name"], "uid": "u", "namespace": "shop"}
    spec = {"template": recorded["template"]}
    document = {"apiVersion": "apps/v1", "kind": recorded["kind"], "metadata": metadata, "spec": spec}
    return read(StatefulSet, document) if recorded["kind"] == "StatefulSet" else read(DaemonSet, document)


@pytest.mark.parametrize("recorded", RECORDED, ids=[one["name"] for one in RECORDED])
def test_data_and_name_of_a_revision_are_those_of_the_real_controller(recorded: dict[str, Any]) -> None:
    owner = owner_of(recorded)
    data = template_patch(owner)
    assert data == recorded["data"]
    assert json.dumps(data) == json.dumps(data, sort_keys=True)  # upstream's controller compares the bytes
    # The two controllers name their revisions in different ways.
    value = revision_hash(data, 0) if recorded["kind"] == "StatefulSet" else template_hash(recorded["template"])
    assert revision_name(recorded["name"], value) == recorded["revision"]


def test_a_new_revision_has_the_labels_of_the_template_and_the_annotations_of_the_set() -> None:
    owner = owner_of(RECORDED[0] | {"kind": "StatefulSet"})
    assert isinstance(owner, StatefulSet)
    owner.metadata.annotations = {"kubernetes.io/change-cause": "first"}
    made = new_revision(owner, template_patch(owner), 7, 0)
    labels = owner.spec.template.metadata.labels
    assert made.metadata.labels == {**labels, HASH_LABEL: revision_hash(made.data or {}, 0)}
    assert (made.revision, made.metadata.annotations) == (7, {"kubernetes.io/change-cause": "first"})
    (reference,) = made.metadata.owner_references
    assert (reference.kind, reference.uid, reference.controller, reference.block_owner_deletion) == ("StatefulSet", "u", True, True)


def revision(name: str, number: int, image: str, **template: Any) -> ControllerRevision:
    return ControllerRevision(metadata=ObjectMeta(name=name), data=patch(image, **template), revision=number)


def patch(image: str, **template: Any) -> dict[str, Any]:
    return {"spec": {"template": {"$patch": "replace", "spec": {"containers": [{"image": image}]}, **template}}}


FIRST, SECOND, THIRD = revision("a", 1, "x:1"), revision("b", 2, "x:2"), revision("c", 3, "x:3")
WITH_NULL = revision("d", 4, "x:4", metadata={"creationTimestamp": None, "labels": {"a": "b"}})


@pytest.mark.parametrize(
    ("revisions", "data", "expected"),
    [
        pytest.param([], patch("x:1"), (None, False), id="without a history there is no match"),
        pytest.param([FIRST, SECOND], patch("x:3"), (None, False), id="a new template matches none"),
        pytest.param([FIRST, SECOND], patch("x:2"), ("b", False), id="the newest revision is the present one"),
        pytest.param([FIRST, SECOND, THIRD], patch("x:1"), ("a", True), id="an older template is a rollback"),
        pytest.param([FIRST, revision("z", 5, "x:1")], patch("x:1"), ("z", False), id="of two equal revisions the newer one matches"),
        pytest.param(
            [FIRST, WITH_NULL], patch("x:4", metadata={"labels": {"a": "b"}}), ("d", False), id="a null in the newest revision is ignored"
        ),
        pytest.param(
            [WITH_NULL, revision("e", 5, "x:5")],
            patch("x:4", metadata={"labels": {"a": "b"}}),
            (None, False),
            id="a null in an older revision is not ignored",
        ),
    ],
)
def test_find_match(revisions: list[ControllerRevision], data: dict[str, Any], expected: tuple[str | None, bool]) -> None:
    match = find_match(revisions, data)
    assert (match.revision.metadata.name if match.revision is not None else None, match.rollback) == expected


@pytest.mark.parametrize(
    ("live", "limit", "expected"),
    [
        pytest.param((), None, [], id="ten old revisions stay by default"),
        pytest.param((), 1, ["a", "b"], id="the oldest go"),
        pytest.param((), 0, ["a", "b", "c"], id="without a history all unused ones go"),
        pytest.param(("a",), 1, ["b"], id="a revision of a pod neither counts nor goes"),
        pytest.param(("a", "b", "c"), 0, [], id="revisions in use always stay"),
        pytest.param((), -1, [], id="a negative limit deletes none"),
    ],
)
def test_surplus_revisions(live: tuple[str, ...], limit: int | None, expected: list[str]) -> None:
    assert [one.metadata.name for one in surplus_revisions([FIRST, SECOND, THIRD], live, limit)] == expected


def test_revisions_are_ordered_by_number_and_then_by_name() -> None:
    assert [one.metadata.name for one in in_order([THIRD, revision("aa", 1, "x"), FIRST])] == ["a", "aa", "c"]
    assert (next_number([]), next_number([THIRD, FIRST])) == (1, 4)


def test_the_name_of_a_revision_is_cut_so_that_it_stays_a_valid_name() -> None:
    assert revision_name("n" * 250, "abcd") == "n" * 223 + "-abcd"


def test_a_collision_count_changes_the_hash_and_none_differs_from_zero() -> None:
    data = patch("x:1")
    assert len({revision_hash(data, count) for count in (None, 0, 1)}) == 3


def test_data_is_encoded_with_sorted_keys_and_safe_for_html() -> None:
    assert encode_data({"b": "<&>\u2028", "a": [True, None, 1]}) == b'{"a":[true,null,1],"b":"\\u003c\\u0026\\u003e\\u2028"}'


def test_the_template_of_a_revision_has_no_directive() -> None:
    assert template_of(FIRST) == {"spec": {"containers": [{"image": "x:1"}]}}
