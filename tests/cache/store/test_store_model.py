"""The store as a state machine against plain dicts: any indexes, any history; each index equals a full recomputation after each step."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kubeloop.cache import ByLabel, Snapshot, Sorted
from kubeloop.cache.blobs.head import Head
from kubeloop.cache.deltas import Delta, Removed, Replaced, Upserted, VersionBookmark
from kubeloop.cache.pipeline import apply
from kubeloop.cache.store.index import index_key
from kubeloop.cache.store.index_sources import IndexSource, make_index
from kubeloop.codec import decode
from kubeloop.meta import Unstructured
from tests.cache.heads import READER, head, store

Key = tuple[str, str]
Facts = dict[str, Any]


def by_name(pod: Unstructured) -> list[str]:
    if pod.metadata.name == "d":
        raise ValueError("d is in no index of names")
    return [pod.metadata.name, pod.metadata.name, f"in-{pod.metadata.namespace}"]


#: Name, what makes the index, and what an object's values are by definition.
KINDS: dict[str, IndexSource[Unstructured]] = {
    "node": "spec.nodeName",
    "ports": "spec.ports[*]",
    "team": ByLabel("team"),
    "name": by_name,
    "rank": Sorted("spec.rank"),
    "port-order": Sorted("spec.ports[*]"),
    "shouted": Sorted("spec.rank", key=lambda rank: str(rank).upper()),
}


def values(kind: str, key: Key, facts: Facts) -> list[Any]:
    namespace, name = key
    rank = facts["rank"]
    match kind:
        case "node":
            return [facts["node"] or ""]
        case "team":
            return [] if facts["team"] is None else [facts["team"]]
        case "name":
            return [] if name == "d" else [name, f"in-{namespace}"]
        case "rank":
            return [] if rank is None else [rank]
        case "shouted":
            return [] if rank is None else [str(rank).upper()]
    return list(dict.fromkeys(facts["ports"]))


def order(value: Any) -> tuple[int, Any]:
    return (2 if isinstance(value, str) else 0 if isinstance(value, bool) else 1), value


KEYS = st.tuples(st.sampled_from(["x", "y"]), st.sampled_from("abcd"))
FACTS = st.fixed_dictionaries(
    {
        "node": st.sampled_from([None, "n1", "n2"]),
        "ports": st.lists(st.integers(1, 3), max_size=3),
        "team": st.sampled_from([None, "", "red"]),
        "rank": st.sampled_from([None, 1, 2.5, True, "b", "a", ""]),
    }
)


class Against(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = store()
        self.model: dict[Key, tuple[str, Facts]] = {}
        self.version = 0
        self.kept: list[tuple[Snapshot, list[Head], dict[Key, str]]] = []
        self.alive: dict[Key, str] = {}

    @initialize(kinds=st.sets(st.sampled_from(sorted(KINDS))))
    def start(self, kinds: set[str]) -> None:
        self.store = store(**{kind: KINDS[kind] for kind in kinds})

    def make(self, key: Key, facts: Facts) -> Head:
        labels = None if facts["team"] is None else {"team": facts["team"]}
        return head(key[1], self.version, key[0], labels, **{name: facts[name] for name in ("node", "ports", "rank")})

    def apply(self, delta: Delta) -> None:
        for change in apply(self.store, delta):
            key = (change.head.namespace, change.head.name)
            if change.type == "DELETED":
                assert self.alive.pop(key) is not None
            else:
                assert (change.type == "ADDED") == (key not in self.alive)
                self.alive[key] = change.head.resource_version

    @rule(key=KEYS, facts=FACTS)
    def change(self, key: Key, facts: Facts) -> None:
        self.version += 1
        self.apply(Upserted(self.make(key, facts)))
        self.model[key] = (str(self.version), facts)

    @rule(key=KEYS)
    def remove(self, key: Key) -> None:
        if key in self.model:
            self.version += 1
            self.apply(Removed(self.make(key, self.model.pop(key)[1])))

    @rule(objects=st.dictionaries(KEYS, FACTS, max_size=6), scope=st.sampled_from([None, "x"]))
    def replace(self, objects: dict[Key, Facts], scope: str | None) -> None:
        self.version += 1
        self.apply(Replaced(tuple(self.make(key, facts) for key, facts in objects.items()), str(self.version), scope))
        new = {key: (str(self.version), facts) for key, facts in objects.items() if scope in (None, key[0])}
        self.model = {key: state for key, state in self.model.items() if scope not in (None, key[0])} | new

    @rule()
    def bookmark(self) -> None:
        self.version += 1
        self.apply(VersionBookmark(str(self.version)))

    @rule(kind=st.sampled_from(sorted(KINDS)))
    def add_index(self, kind: str) -> None:
        if kind not in self.store.indexes:
            self.store.add_index(
                make_index(kind, KINDS[kind], READER.attributes, lambda each: decode(Unstructured, each.document(), checked=True))
            )

    @precondition(lambda self: len(self.kept) < 4)
    @rule()
    def keep(self) -> None:
        self.kept.append((self.store.snapshot(), self.store.heads(), {key: version for key, (version, _) in self.model.items()}))

    @invariant()
    def the_store_is_the_model(self) -> None:
        assert {(each.namespace, each.name): each.resource_version for each in self.store.heads()} == self.alive
        assert self.alive == {key: version for key, (version, _) in self.model.items()}
        assert len(self.store) == len(self.store.snapshot()) == len(self.model)
        assert set(self.store.namespaces()) == {namespace for namespace, _ in self.model}
        assert self.store.version == (str(self.version) if self.version else "")
        for namespace in "xy":
            assert {each.name for each in self.store.heads(namespace)} == {name for there, name in self.model if there == namespace}

    @invariant()
    def each_index_equals_its_recomputation(self) -> None:
        for kind in self.store.indexes:
            found: dict[str, set[Key]] = {}
            places: list[tuple[tuple[int, Any], Key]] = []
            for key, (_, facts) in self.model.items():
                for value in values(kind, key, facts):
                    found.setdefault(index_key(value), set()).add(key)
                    places.append((order(value), key))
            assert set(self.store.index_values(kind)) == set(found)
            for value, keys in found.items():
                answer = self.store.by_index(kind, value)
                assert {(each.namespace, each.name) for each in answer} == keys
                assert len(answer) == len(keys)
            if isinstance(KINDS[kind], Sorted):
                places.sort()
                assert [(each.namespace, each.name) for each in self.store.range(kind)] == [key for _, key in places]
                below = [key for (sort, value), key in places if sort == 2 and value < "b"]
                assert [(each.namespace, each.name) for each in self.store.range(kind, high="b", reverse=True)] == below[::-1]

    @invariant()
    def what_was_handed_out_stays_as_it_was(self) -> None:
        for snapshot, heads, then in self.kept:
            assert {(each.namespace, each.name): each.resource_version for each in snapshot} == then
            assert {(each.namespace, each.name): each.resource_version for each in heads} == then


Against.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestAnyHistory = Against.TestCase
