"""The arithmetic of a rollout: bounds, growth of the new ReplicaSet, shrinking of the old ones, scaling in the middle of it."""

from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from kubeloop.controlplane.controller_utils import scaled_value
from kubeloop.controlplane.workloads.rollout import Bounds, ReplicaSetSize, new_size, rescale, shrink_old
from kubeloop.meta import IntOrString

START = datetime(2026, 1, 1, tzinfo=UTC)


def made(
    name: str, replicas: int, available: int | None = None, age: int = 0, before: int | None = None, desired: int | None = None
) -> ReplicaSetSize:
    return ReplicaSetSize(name, replicas, replicas if available is None else available, START - timedelta(minutes=age), desired, before)


@pytest.mark.parametrize(
    ("value", "total", "up", "expected"),
    [
        pytest.param(3, 10, True, 3, id="a number is itself"),
        pytest.param("25%", 10, True, 3, id="a percentage of surge is rounded up"),
        pytest.param("25%", 10, False, 2, id="a percentage of unavailable is rounded down"),
        pytest.param("100%", 7, False, 7, id="all of them"),
        pytest.param(None, 7, True, 0, id="nothing is none"),
    ],
)
def test_scaled_value(value: IntOrString | None, total: int, up: bool, expected: int) -> None:
    assert scaled_value(value, total, up=up) == expected


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        pytest.param(10, "25%", "25%", Bounds(10, 3, 2), id="the defaults of Kubernetes for ten replicas"),
        pytest.param(1, "25%", "25%", Bounds(1, 1, 0), id="one replica is replaced by starting another first"),
        pytest.param(4, 0, 0, Bounds(4, 0, 1), id="two zeros would never move, so one may be unavailable"),
        pytest.param(2, 1, 5, Bounds(2, 1, 2), id="no more than all can be unavailable"),
    ],
)
def test_bounds(replicas: int, surge: IntOrString, unavailable: IntOrString, expected: Bounds) -> None:
    assert Bounds.resolve(replicas, surge, unavailable) == expected


@pytest.mark.parametrize(
    ("bounds", "new", "old", "expected"),
    [
        pytest.param(Bounds(3, 1, 0), None, [], 3, id="the first ReplicaSet is created with all replicas"),
        pytest.param(Bounds(3, 1, 0), None, [made("a", 3)], 1, id="beside an old one the new one starts with the surge"),
        pytest.param(Bounds(3, 1, 0), made("b", 1), [made("a", 3)], 1, id="at the most pods allowed it does not grow"),
        pytest.param(Bounds(3, 1, 0), made("b", 1), [made("a", 2)], 2, id="it grows into the room that the old one left"),
        pytest.param(Bounds(3, 5, 0), made("b", 1), [made("a", 3)], 3, id="it never grows beyond the replicas"),
        pytest.param(Bounds(2, 1, 0), made("b", 5), [], 2, id="a set that is too large shrinks at once"),
    ],
)
def test_new_size(bounds: Bounds, new: ReplicaSetSize | None, old: list[ReplicaSetSize], expected: int) -> None:
    assert new_size(bounds, new, old) == expected


@pytest.mark.parametrize(
    ("bounds", "new", "old", "expected"),
    [
        pytest.param(Bounds(3, 1, 0), made("b", 1, 0), [made("a", 3)], {}, id="nothing goes while the new pod is not available"),
        pytest.param(Bounds(3, 1, 0), made("b", 1), [made("a", 3)], {"a": 2}, id="an old pod goes for each pod that became available"),
        pytest.param(Bounds(4, 0, 2), made("b", 0), [made("a", 4)], {"a": 2}, id="without surge the old one makes room first"),
        pytest.param(Bounds(3, 1, 0), made("b", 1, 0), [made("a", 3, 2)], {}, id="an unhealthy old pod stays if it is needed"),
        pytest.param(Bounds(3, 1, 1), made("b", 1, 0), [made("a", 3, 2)], {"a": 2}, id="unhealthy pods of the old one go first"),
        pytest.param(
            Bounds(3, 1, 0),
            made("c", 3),
            [made("a", 1, age=9), made("b", 2, age=5)],
            {"a": 0, "b": 0},
            id="all available empties the old",
        ),
        pytest.param(Bounds(3, 1, 0), made("c", 1), [made("a", 1, age=9), made("b", 2, age=5)], {"a": 0}, id="the oldest shrinks first"),
    ],
)
def test_shrink_old(bounds: Bounds, new: ReplicaSetSize, old: list[ReplicaSetSize], expected: dict[str, int]) -> None:
    assert shrink_old(bounds, new, old) == expected


@pytest.mark.parametrize(
    ("bounds", "new", "old", "expected"),
    [
        pytest.param(Bounds(5, 1, 0), made("b", 3), [made("a", 0)], {"b": 5}, id="outside of a rollout the only active set takes all"),
        pytest.param(Bounds(5, 1, 0), made("b", 0), [made("a", 3)], {"a": 5}, id="even if the only active set is an old one"),
        pytest.param(Bounds(2, 1, 0), None, [made("a", 0, age=5), made("b", 0, age=1)], {"b": 2}, id="from zero the latest set is scaled"),
        pytest.param(Bounds(3, 1, 0), made("b", 3, desired=3), [made("a", 1)], {"a": 0}, id="a saturated new set empties the old ones"),
        pytest.param(
            Bounds(20, 2, 0),
            made("b", 6, before=12),
            [made("a", 6, before=12, age=5)],
            {"b": 11, "a": 11},
            id="sets grow in proportion",
        ),
        pytest.param(
            Bounds(5, 1, 0), made("b", 6, before=12), [made("a", 6, before=12, age=5)], {"b": 3, "a": 3}, id="and shrink in proportion"
        ),
        pytest.param(Bounds(0, 0, 0), made("b", 2), [made("a", 3)], {"b": 0, "a": 0}, id="scaled to zero all are emptied"),
    ],
)
def test_rescale(bounds: Bounds, new: ReplicaSetSize | None, old: list[ReplicaSetSize], expected: dict[str, int]) -> None:
    status = (new.replicas if new else 0) + sum(one.replicas for one in old)
    assert rescale(bounds, new, old, rolling=True, status_replicas=status) == expected


@settings(max_examples=200, deadline=None)
@given(
    replicas=st.integers(0, 12),
    surge=st.integers(0, 5),
    unavailable=st.integers(0, 5),
    olds=st.lists(st.integers(0, 8), min_size=1, max_size=3),
    choices=st.lists(st.integers(0, 100), min_size=30, max_size=30),
)
def test_a_rollout_ends_and_keeps_within_its_bounds_whatever_order_pods_become_available_in(
    replicas: int, surge: int, unavailable: int, olds: list[int], choices: list[int]
) -> None:
    if sum(olds) != replicas:
        olds = [replicas] + [0] * (len(olds) - 1)
    bounds = Bounds.resolve(replicas, surge, unavailable)
    sizes = {f"old{index}": size for index, size in enumerate(olds)}
    new, available = new_size(bounds, None, [made(name, size) for name, size in sizes.items()]), 0
    for turn in range(400):
        old = [made(name, size, age=10 - index) for index, (name, size) in enumerate(sizes.items())]
        new = new_size(bounds, made("new", new, available), old)
        sizes |= shrink_old(bounds, made("new", new, available), old)
        assert new + sum(sizes.values()) <= max(bounds.most, replicas)
        assert available + sum(sizes.values()) >= bounds.least_available
        if new == replicas and not any(sizes.values()):
            return
        available = min(new, available + choices[turn % len(choices)] % 3 + (turn % len(choices) == 0))
    raise AssertionError("the rollout did not end")


class Lagging:
    """ReplicaSets whose controller carries sizes out late, and whose status is later still; deletions take unavailable pods first."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.sizes = {"r0": bounds.replicas}
        self.pods = {"r0": [bounds.replicas, 0]}  # available, not available
        self.seen = {"r0": bounds.replicas}
        self.new = "r0"

    def look(self) -> None:
        """What the Deployment controller does when it comes to it."""
        sets = {name: made(name, size, self.seen[name], age=-int(name[1:])) for name, size in self.sizes.items()}
        old = [one for name, one in sets.items() if name != self.new]
        wanted = new_size(self.bounds, sets[self.new], old)
        if wanted != self.sizes[self.new]:
            self.sizes[self.new] = wanted
        else:
            self.sizes |= shrink_old(self.bounds, sets[self.new], old)

    def act(self, action: int, choice: int) -> None:
        name = f"r{choice % len(self.sizes)}"
        available, starting = self.pods[name]
        match action:
            case 0 | 1:
                self.look()
            case 2 | 3:  # the ReplicaSet controller
                missing = self.sizes[name] - available - starting
                gone = min(starting, max(-missing, 0))
                self.pods[name] = [available + min(missing + gone, 0), starting - gone + max(missing, 0)]
            case 4 | 5 if starting:
                self.pods[name] = [available + 1, starting - 1]
            case 6 | 7:
                self.seen[name] = available
            case 8 if choice % 5 == 0 and len(self.sizes) < 4:  # another template
                self.new = f"r{len(self.sizes)}"
                self.sizes[self.new], self.pods[self.new], self.seen[self.new] = 0, [0, 0], 0


@settings(max_examples=100, deadline=None)
@given(
    replicas=st.integers(1, 8),
    surge=st.integers(0, 4),
    unavailable=st.integers(0, 4),
    actions=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 20)), max_size=150),
)
def test_the_bounds_hold_also_with_an_old_view_of_the_sets(
    replicas: int, surge: int, unavailable: int, actions: list[tuple[int, int]]
) -> None:
    world = Lagging(Bounds.resolve(replicas, surge, unavailable))
    for action, choice in actions:
        world.act(action, choice)
        assert sum(world.sizes.values()) <= world.bounds.most
        assert sum(available for available, _ in world.pods.values()) >= world.bounds.least_available
    for turn in range(400):
        for action in (0, 2, 4, 6):
            world.act(action, turn)
    assert {name: size for name, size in world.sizes.items() if size} == {world.new: replicas}, "the rollout did not end"


def test_old_sets_whose_status_lags_behind_their_size_do_not_shrink_below_what_must_be_available() -> None:
    assert shrink_old(Bounds(10, 0, 2), made("b", 2, 1), [made("a", 8, 10)]) == {"a": 7}
