"""What the soak finds: each violation that it is there for, and none where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeloop.apiserver.storage import MemoryStorage
from tests.soak.controllers.history import History
from tests.soak.controllers.memory import growth
from tests.soak.controllers.notes import Account, Interval, overlaps, read


def interval(replica: str, start: float, end: float, *, key: str = "k", cancelled: bool = False) -> Interval:
    return Interval(key, replica, start, end, cancelled)


@pytest.mark.parametrize(
    ("intervals", "expected", "late"),
    [
        pytest.param([interval("a", 0, 2), interval("b", 1, 3)], 1, 0, id="two replicas at a time"),
        pytest.param([interval("a", 0, 9), interval("a", 1, 2), interval("b", 3, 4)], 1, 0, id="a long one over a short one"),
        pytest.param([interval("a", 0, 2), interval("b", 2, 3)], 0, 0, id="one after the other"),
        pytest.param([interval("a", 0, 2), interval("b", 1, 3, key="other")], 0, 0, id="two keys"),
        pytest.param([interval("a", 0, 2, cancelled=True), interval("b", 1, 3)], 0, 1, id="a reconcile that was being cancelled"),
    ],
)
def test_a_key_that_two_replicas_had_at_a_time_is_found(intervals: list[Interval], expected: int, late: int) -> None:
    wrong, cancelled = overlaps([Account(intervals=intervals)])
    assert (len(wrong), cancelled) == (expected, late)


def test_notes_of_a_killed_replica_end_with_its_death(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.write_text("1.0 begin a\n2.0 end a\n3.0 begin b\n4.0 begin b\n5.0 memory 50.5\n6.0 end")
    account = read(notes, "r", 9.0)
    assert account.intervals == [Interval("a", "r", 1, 2, False), Interval("b", "r", 3, 9, False), Interval("b", "r", 4, 9, False)]
    assert account.memory == [(5.0, 50.5)]
    assert account.twice == ["b is reconciled twice at a time in r"]


def test_memory_is_compared_with_that_after_the_first_minute_of_work() -> None:
    sizes = [10.0] * 6 + [40.0] * 10 + [50.0] * 4
    account = Account([interval("a", 0, 1)], [(10.0 * (number + 1), size) for number, size in enumerate(sizes)])
    (found,) = growth({"a": account, "without work": Account(memory=account.memory)})
    assert (found.first, found.last, found.too_much) == (40, 50, True)


def thing(generation: int, *, seen: int | None = None, by: str = "a", term: int = 1) -> dict[str, Any]:
    status = {"value": seen, "generation": seen, "by": by, "term": term} if seen is not None else {}
    metadata = {"uid": "u", "name": "t", "namespace": "n", "generation": generation}
    return {"kind": "Alpha", "metadata": metadata, "spec": {"value": generation}, "status": status}


def child(generation: int, *, uid: str = "c", by: str = "a") -> dict[str, Any]:
    metadata = {"uid": uid, "name": uid, "namespace": "n", "ownerReferences": [{"uid": "u", "controller": True}]}
    return {"kind": "ConfigMap", "metadata": metadata, "data": {"value": str(generation), "generation": str(generation), "by": by}}


def lease(holder: str) -> dict[str, Any]:
    return {"kind": "Lease", "metadata": {"uid": "l", "name": "soak"}, "spec": {"holderIdentity": holder}}


_THING, _LEASE = "/registry/soak.kubeloop.dev/alphas/n/t", "/registry/coordination.k8s.io/leases/default/soak"
_CHILD, _OTHER = "/registry/core/configmaps/n/c", "/registry/core/configmaps/n/d"
_BEGUN = [(_LEASE, lease("a")), (_THING, thing(2)), (_CHILD, child(2)), (_THING, thing(2, seen=2))]


@pytest.mark.parametrize(
    ("writes", "violation"),
    [
        pytest.param([], "", id="nothing is wrong"),
        pytest.param([(_CHILD, child(1))], "put the child of Alpha/n/t back from generation 2 to 1", id="a child is put back"),
        pytest.param([(_THING, thing(2, seen=1))], "put the status of Alpha/n/t back", id="a status is put back"),
        pytest.param([(_OTHER, child(2, uid="d"))], "made another child of Alpha/n/t", id="a child is made twice"),
        pytest.param([(_CHILD, child(3, by="b"))], "while the lease was held by a", id="a replica writes without the lease"),
        pytest.param(
            [(_LEASE, lease("")), (_CHILD, child(3))], "while the lease was held by no replica", id="a replica writes after it left"
        ),
        pytest.param([(_THING, thing(2, seen=3, term=0))], "in term 0, after a write of term 1", id="a write of an earlier term"),
    ],
)
async def test_what_must_never_be_written_is_found(writes: list[tuple[str, dict[str, Any]]], violation: str) -> None:
    storage = MemoryStorage()
    history = History(lambda: storage, elected=True)
    versions: dict[str, int] = {}
    for key, value in _BEGUN + writes:
        versions[key] = (await storage.write(key, msgspec.json.encode(value), expected=versions.get(key, 0))).revision
    history.read()
    assert len(history.violations) == bool(violation)
    assert violation in "".join(history.violations)
    await storage.close()


async def test_an_object_that_is_not_as_it_is_to_be_is_named() -> None:
    storage = MemoryStorage()
    history = History(lambda: storage, elected=True)
    revision = 0
    for value in (thing(2), thing(2, seen=2), thing(3, seen=2)):
        revision = (await storage.write(_THING, msgspec.json.encode(value), expected=revision)).revision
    history.read()
    assert history.unsettled == 1
    assert [line.split(":")[0] for line in history.wrong({"Alpha/n/t": 3, "Alpha/n/lost": 7})] == ["Alpha/n/t", "Alpha/n/lost"]
    await storage.close()
