"""The decisions of the StatefulSet controller: which pods it creates, deletes and repairs, whom their claims belong to, and the status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.api.apps.v1 import StatefulSet, StatefulSetStatus
from kubeloop.cache import Owner
from kubeloop.controlplane.workloads.history import REVISION_LABEL
from kubeloop.controlplane.workloads.pod_snapshots import PodSnapshot
from kubeloop.controlplane.workloads.stateful_claims import RetentionPolicy
from kubeloop.controlplane.workloads.stateful_plan import (
    NAME_LABEL,
    ClaimState,
    PodAction,
    SetFacts,
    StatefulView,
    differs,
    make_plan,
    make_status,
    parse_name,
    seconds_until_available,
    sort_pods,
)
from kubeloop.meta import ObjectMeta, OwnerReference

#: The fields of an owner reference that these tests set.
FIELDS = ("api_version", "kind", "name", "uid", "controller")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
RETAIN = RetentionPolicy(delete_with_set=False, delete_with_pod=False)
SIGNS = {PodAction.CREATE: "+", PodAction.DELETE: "-", PodAction.REPAIR: "~", PodAction.ENSURE_CLAIMS: "c", PodAction.CORRECT_OWNERS: "o"}


def facts(**fields: Any) -> SetFacts:
    chosen: dict[str, Any] = {
        "name": "web",
        "uid": "set",
        "start": 0,
        "replicas": 3,
        "parallel": False,
        "rolling": True,
        "partition": 0,
        "max_unavailable": None,
        "min_ready_seconds": 0,
        "policy": RETAIN,
        "claim_templates": (),
        "current_replicas": 0,
        "deleting": False,
    }
    return SetFacts(**(chosen | fields))


def pods(states: str, start: int = 0) -> list[PodSnapshot]:
    """A word for each ordinal: R ready and of the new revision, r of the old one, p pending, u not ready, f failed, s succeeded, t or T
    terminating (old or new), x without its name label, . missing.
    """
    found = []
    for ordinal, state in enumerate(states, start):
        if state == ".":
            continue
        name = f"web-{ordinal}"
        labels = {REVISION_LABEL: "web-old" if state in "rpuft" and state != "R" else "web-new"}
        if state != "x":
            labels[NAME_LABEL] = name
        phase = {"p": "Pending", "f": "Failed", "s": "Succeeded"}.get(state, "Running")
        ready = state in "RrTtx"
        found.append(PodSnapshot(name, f"uid-{ordinal}", labels, phase, state in "tT", NOW, "n", "n", ready, NOW if ready else None, {}))
    return found


def view(states: str, claims: dict[str, ClaimState] | None = None, now: datetime = NOW, **fields: Any) -> StatefulView:
    chosen = facts(**fields)
    replicas, condemned = sort_pods(chosen, pods(states))
    return StatefulView(chosen, replicas, condemned, claims or {}, "web-new", now)


def steps(view: StatefulView) -> str:
    return " ".join(f"{SIGNS[step.action]}{step.ordinal}" for phase in make_plan(view).phases for step in phase)


@pytest.mark.parametrize(
    ("states", "fields", "expected"),
    [
        pytest.param("", {}, "+0", id="an ordered set creates its first pod"),
        pytest.param("p", {}, "", id="the second waits while the first is pending"),
        pytest.param("u", {}, "", id="and while it is not ready"),
        pytest.param("R", {}, "+1", id="a ready pod lets the next one come"),
        pytest.param("R", {"min_ready_seconds": 5}, "", id="not before it is available"),
        pytest.param("RRR", {}, "", id="nothing is to do when all are ready"),
        pytest.param("R.R", {}, "+1", id="a gap is filled first"),
        pytest.param("RfR", {}, "-1", id="a failed pod is deleted"),
        pytest.param("RsR", {}, "-1", id="so is a succeeded one"),
        pytest.param("RTR", {}, "", id="a terminating pod is waited for"),
        pytest.param("RRRRR", {}, "-4", id="a surplus pod goes, the highest first"),
        pytest.param("RRRRT", {}, "", id="one at a time"),
        pytest.param("RuRRR", {}, "", id="none goes while a pod that stays is not ready"),
        pytest.param("RRRRu", {}, "-4", id="an unready surplus pod may go if it is the lowest unhealthy one"),
        pytest.param("RRRuu", {}, "", id="the highest waits for a lower unhealthy one, which the user must resolve"),
        pytest.param("RRRuR", {}, "-4", id="a healthy one above an unhealthy one goes"),
        pytest.param("RxR", {}, "~1", id="a pod without its name label is repaired"),
        pytest.param("", {"parallel": True}, "+0 +1 +2", id="a parallel set creates all at once"),
        pytest.param("pfs", {"parallel": True}, "-1 -2", id="and replaces all ended pods at once"),
        pytest.param("RRRRRuT", {"parallel": True}, "-5 -4 -3", id="and deletes all surplus pods at once, but for terminating ones"),
        pytest.param("R.RR", {"parallel": True}, "+1 -3", id="creating and deleting together"),
        pytest.param("", {"start": 2, "replicas": 1}, "+2", id="ordinals begin at the start ordinal"),
        pytest.param("RRRR", {"start": 2, "replicas": 2}, "-1", id="pods below the start ordinal are surplus"),
        pytest.param("RRR", {"deleting": True, "replicas": 1}, "", id="a set that is being deleted changes nothing"),
        pytest.param("", {"replicas": 0}, "", id="an empty set has nothing to do"),
    ],
)
def test_scaling(states: str, fields: dict[str, Any], expected: str) -> None:
    assert steps(view(states, **fields)) == expected


@pytest.mark.parametrize(
    ("states", "fields", "expected"),
    [
        pytest.param("rrr", {}, "-2", id="an update replaces the last pod first"),
        pytest.param("rrR", {}, "-1", id="the next when the new one is ready"),
        pytest.param("rrR", {"min_ready_seconds": 5}, "", id="not before it is available"),
        pytest.param("rrr", {"partition": 2}, "-2", id="pods from the partition on are replaced"),
        pytest.param("rrR", {"partition": 2}, "", id="pods below the partition stay"),
        pytest.param("rrr", {"partition": 5}, "", id="a partition above all pods replaces none"),
        pytest.param("rrr", {"rolling": False}, "", id="OnDelete replaces none"),
        pytest.param("rru", {}, "", id="an ordered set waits for an old pod that is not ready, even to replace it"),
        pytest.param("rru", {"parallel": True}, "-2", id="a parallel set replaces it"),
        pytest.param("rur", {"parallel": True}, "-2", id="a parallel set replaces from the top, too"),
        pytest.param("ruT", {"parallel": True}, "", id="and one at a time"),
        pytest.param("rrr", {"max_unavailable": 2}, "-2 -1", id="maxUnavailable pods are replaced at once"),
        pytest.param("rrr", {"max_unavailable": "70%"}, "-2 -1", id="a percentage is rounded down"),
        pytest.param("rrr", {"max_unavailable": "10%"}, "-2", id="but to one at least"),
        pytest.param("rrt", {"max_unavailable": 2, "parallel": True}, "-1", id="unavailable pods count"),
        pytest.param("rtt", {"max_unavailable": 2, "parallel": True}, "", id="until the budget is used"),
        pytest.param("rrr", {"max_unavailable": 3, "partition": 1}, "-2 -1", id="the partition holds with maxUnavailable"),
    ],
)
def test_updates(states: str, fields: dict[str, Any], expected: str) -> None:
    assert steps(view(states, **fields)) == expected


@pytest.mark.parametrize(
    ("ordinal", "fields", "expected"),
    [
        pytest.param(1, {"partition": 2}, True, id="a new pod below the partition has the old template"),
        pytest.param(2, {"partition": 2}, False, id="one from the partition on has the new template"),
        pytest.param(6, {"partition": 2, "start": 5}, True, id="the partition counts from the start ordinal"),
        pytest.param(1, {"partition": None, "current_replicas": 2}, True, id="without a partition pods not yet updated have the old one"),
        pytest.param(1, {"partition": None, "rolling": False}, False, id="OnDelete always creates from the new template"),
    ],
)
def test_uses_current_revision(ordinal: int, fields: dict[str, Any], expected: bool) -> None:
    assert facts(**fields).uses_current_revision(ordinal) is expected


def by_set(uid: str = "set", controller: bool | None = True) -> Owner:
    return Owner("apps/v1", "StatefulSet", "web", uid, controller)


def by_pod(ordinal: int, uid: str | None = None) -> Owner:
    return Owner("v1", "Pod", f"web-{ordinal}", f"uid-{ordinal}" if uid is None else uid, True)


OTHER = Owner("example.com/v1", "Backup", "b", "other", True)
READER = Owner("example.com/v1", "Backup", "b", "other", None)


@pytest.mark.parametrize(
    ("deleted", "scaled", "ordinal", "owners", "expected"),
    [
        pytest.param(False, False, 0, [], None, id="claims that stay have no owner"),
        pytest.param(False, False, 0, [by_set()], [], id="an owner of an earlier policy goes"),
        pytest.param(False, False, 0, [OTHER], None, id="another controller is left alone"),
        pytest.param(True, False, 0, [], [by_set()], id="a claim that goes with the set belongs to it"),
        pytest.param(True, False, 9, [], [by_set()], id="a surplus pod's, too"),
        pytest.param(True, False, 0, [by_set(controller=None)], [by_set()], id="the set becomes its controller"),
        pytest.param(True, False, 0, [READER], [READER, by_set()], id="other owners stay"),
        pytest.param(False, True, 0, [], None, id="a claim that goes with its pod has no owner while the pod is in range"),
        pytest.param(False, True, 9, [], [by_pod(9)], id="a surplus pod owns it"),
        pytest.param(False, True, 0, [by_pod(0)], [], id="a pod that is in range again releases it"),
        pytest.param(True, True, 0, [], [by_set()], id="with both rules it belongs to the set in range"),
        pytest.param(True, True, 9, [by_set()], [by_pod(9)], id="and to the pod out of range"),
        pytest.param(True, False, 0, [OTHER], None, id="another controller's claim is not taken"),
        pytest.param(True, False, 0, [OTHER, by_set()], [OTHER], id="and is given back"),
        pytest.param(True, False, 0, [by_set("old")], None, id="a claim of a deleted namesake of the set is left to the garbage collector"),
        pytest.param(True, True, 0, [by_pod(0, "old")], None, id="so is that of a deleted pod"),
    ],
)
def test_owners_of_claims(deleted: bool, scaled: bool, ordinal: int, owners: list[Owner], expected: list[Owner] | None) -> None:
    policy = RetentionPolicy(delete_with_set=deleted, delete_with_pod=scaled)
    ownership = facts(policy=policy).ownership(ordinal, f"uid-{ordinal}")
    assert ownership.is_current(owners) is (expected is None)
    if expected is not None:
        references = [OwnerReference(**{name: getattr(one, name) for name in FIELDS}) for one in owners]
        found = [(one.kind, one.uid, one.controller) for one in ownership.corrected(references)]
        assert found == [(one.kind, one.uid, one.controller) for one in expected]


@pytest.mark.parametrize(
    ("states", "claims", "policy", "expected"),
    [
        pytest.param("p", {}, RETAIN, "c0", id="the missing claim of a pending pod is created"),
        pytest.param("p", {"data-web-0": ClaimState(False, ())}, RETAIN, "", id="not if it exists"),
        pytest.param("p", {"data-web-0": ClaimState(True, ())}, RETAIN, "c0", id="a claim that is being deleted is an error"),
        pytest.param("R", {}, RETAIN, "~0", id="a running pod without the claim's volume is repaired"),
        pytest.param("..", {"data-web-0": ClaimState(False, (by_pod(0, "old"),))}, RETAIN, "+0", id="a claim that stays is used again"),
        pytest.param(
            "..",
            {"data-web-0": ClaimState(False, (by_pod(0, "old"),))},
            RetentionPolicy(delete_with_set=False, delete_with_pod=True),
            "",
            id="a claim that goes with the deleted pod is waited for",
        ),
        pytest.param(
            ".p",
            {"data-web-1": ClaimState(False, ())},
            RetentionPolicy(delete_with_set=False, delete_with_pod=True),
            "o1",
            id="a surplus pod becomes the owner of its claim before it goes",
        ),
    ],
)
def test_claims(states: str, claims: dict[str, ClaimState], policy: RetentionPolicy, expected: str) -> None:
    replicas = 0 if expected == "o1" else 1
    found = view(states, claims, claim_templates=("data",), policy=policy, replicas=replicas)
    plan = make_plan(found)
    assert steps(found).split(" -")[0] == expected
    assert plan.waits_for_claim is (states == ".." and policy.delete_with_pod)


def test_a_plan_that_waits_for_a_claim_says_so_and_goes_on_in_parallel() -> None:
    policy = RetentionPolicy(delete_with_set=False, delete_with_pod=True)
    claims = {"data-web-0": ClaimState(False, (by_pod(0, "old"),))}
    found = view("...", claims, claim_templates=("data",), policy=policy, parallel=True)
    assert (steps(found), make_plan(found).waits_for_claim) == ("+1 +2", True)


def status(states: str, current: str = "web-old", **fields: Any) -> StatefulSetStatus:
    found = view(states, **fields)
    return make_status(found, make_plan(found), StatefulSet(metadata=ObjectMeta(name="web", generation=4)), current)


@pytest.mark.parametrize(
    ("states", "fields", "expected"),
    [
        pytest.param("", {}, (0, None, 0, None, None, "web-old"), id="pods that are to be created do not count yet"),
        pytest.param("rrr", {}, (3, 3, 3, 2, None, "web-old"), id="a pod that is to be replaced no longer counts as current"),
        pytest.param("rrR", {"partition": 2}, (3, 3, 3, 2, 1, "web-old"), id="a partial update counts both revisions"),
        pytest.param("RRR", {}, (3, 3, 3, 3, 3, "web-new"), id="a complete update makes its revision the current one"),
        pytest.param("RRR", {"rolling": False}, (3, 3, 3, None, 3, "web-old"), id="OnDelete never does"),
        pytest.param("RRRR", {}, (4, 4, 4, None, 4, "web-old"), id="not while there are surplus pods"),
        pytest.param("RRT", {}, (3, 3, 3, None, 2, "web-old"), id="a terminating pod is counted, but has no revision"),
        pytest.param("RRR", {"min_ready_seconds": 9}, (3, 3, 0, 3, 3, "web-new"), id="a pod that was not ready for long enough"),
        pytest.param("up", {"parallel": True, "replicas": 2}, (2, None, 0, 1, None, "web-old"), id="unready pods are replicas, too"),
    ],
)
def test_status(states: str, fields: dict[str, Any], expected: tuple[object, ...]) -> None:
    found = status(states, **fields)
    counts = (found.replicas, found.ready_replicas, found.available_replicas, found.current_replicas, found.updated_replicas)
    assert (*counts, found.current_revision) == expected
    assert (found.update_revision, found.observed_generation) == ("web-new", 4)


def test_a_status_is_written_only_if_a_number_or_a_revision_changes() -> None:
    old = status("RRR")
    assert not differs(old, status("RRR"))
    assert differs(StatefulSetStatus(), old)
    assert differs(old, status("RRu"))
    again = status("RRR")
    again.collision_count = 3
    assert not differs(old, again)
    again.observed_generation = 5
    assert differs(old, again)


@pytest.mark.parametrize(
    ("seconds", "least", "expected"),
    [
        pytest.param(4, 10, 6.0, id="the rest of minReadySeconds"),
        pytest.param(10, 10, None, id="nothing for an available pod"),
        pytest.param(0, 0, None, id="nothing without minReadySeconds"),
    ],
)
def test_seconds_until_available(seconds: int, least: int, expected: float | None) -> None:
    assert seconds_until_available(facts(min_ready_seconds=least), pods("Ru"), NOW + timedelta(seconds=seconds)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("web-0", ("web", 0), id="name and ordinal"),
        pytest.param("web-a-12", ("web-a", 12), id="the last part is the ordinal"),
        pytest.param("web", ("", -1), id="no ordinal"),
        pytest.param("web-x", ("", -1), id="no number"),
        pytest.param("web-99999999999", ("web", -1), id="a number beyond 32 bits"),
        pytest.param("web-٣", ("", -1), id="digits of other scripts"),
    ],
)
def test_parse_name(name: str, expected: tuple[str, int]) -> None:
    assert parse_name(name) == expected
