"""The overlay against a model: any order of own writes, others' writes, late, early and repeated events, and relists."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from kubeloop.client import Write
from tests.cache.own_world import MAPPING, World, document

JSON = dict[str, Any]
NAMES = st.sampled_from(["a", "b", "c"])
TIERS = st.sampled_from(["web", "db"])
VALUES = st.sampled_from(["1", "2", "3"])


class _Answer(msgspec.Struct):
    """What the server answered to a write of ours, on its way back. ``version``: at which the write happened."""

    write: Write
    version: int


class Overlaid(RuleBasedStateMachine):
    """The server is a history of states by name; the watch is a place in it.

    The rules: whatever readers see of a name was so at a version not older than the newest own write of it that has returned; and
    an object that we deleted is not seen again.
    """

    selector: str | None = None

    @initialize()
    def begin(self) -> None:
        self.world = World(labels=self.selector)
        self.version = 10
        #: The object at each version, from 0 on, by name.
        self.states: dict[str, list[tuple[int, JSON | None]]] = {name: [(0, None)] for name in "abc"}
        self.log: list[tuple[int, str, JSON | None, JSON]] = []
        self.at = 10
        self.listed = False
        self.answers: list[_Answer] = []
        #: The newest own write that has returned, by name.
        self.returned: dict[str, int] = dict.fromkeys("abc", 0)
        self.ended: set[str] = set()
        self.births = 0
        #: Orders sent writes and received events.
        self.time = 0.0
        self.world.listed([], "10")

    # ---------------------------------------------------------------------------------------------------------------- the server

    def now(self, name: str) -> JSON | None:
        return self.states[name][-1][1]

    def store(self, name: str, new: JSON | None) -> int:
        old = self.now(name)
        self.version += 1
        if new is not None:
            new["metadata"]["resourceVersion"] = str(self.version)
        final = new if new is not None else msgspec.json.decode(msgspec.json.encode(old))
        final["metadata"]["resourceVersion"] = str(self.version)
        self.states[name].append((self.version, new))
        self.log.append((self.version, name, old, final))
        return self.version

    def put(self, name: str, tier: str, x: str) -> JSON:
        old = self.now(name)
        if old is None:
            self.births += 1
        uid = f"u{self.births}" if old is None else old["metadata"]["uid"]
        new = document(name, uid, "", {"tier": tier}, x=x)
        self.store(name, new)
        return new

    def selected(self, obj: JSON | None) -> bool:
        return obj is not None and (self.selector is None or obj["metadata"]["labels"]["tier"] == "web")

    def state_at(self, name: str, version: int) -> JSON | None:
        return next(obj for since, obj in reversed(self.states[name]) if since <= version)

    @rule(name=NAMES, tier=TIERS, x=VALUES)
    def another_client_writes(self, name: str, tier: str, x: str) -> None:
        self.put(name, tier, x)

    @rule(name=NAMES)
    def another_client_deletes(self, name: str) -> None:
        if self.now(name) is not None:
            self.store(name, None)

    # ------------------------------------------------------------------------------------------------------------------ ourselves

    def answer(self, verb: Any, name: str, obj: JSON | None, uid: str) -> None:
        raw = None if obj is None else msgspec.json.encode(obj)
        version = "" if obj is None else obj["metadata"]["resourceVersion"]
        self.time += 1
        self.answers.append(_Answer(Write(MAPPING, verb, "default", name, uid, version, raw, self.time), int(version or self.version)))

    @rule(name=NAMES, tier=TIERS, x=VALUES)
    def we_write(self, name: str, tier: str, x: str) -> None:
        verb = "create" if self.now(name) is None else "update"
        obj = self.put(name, tier, x)
        self.answer(verb, name, obj, obj["metadata"]["uid"])

    @rule(name=NAMES)
    def we_write_a_present_object(self, name: str) -> None:
        obj = self.now(name)
        if obj is not None:
            self.answer("update", name, obj, obj["metadata"]["uid"])

    @rule(name=NAMES)
    def we_delete(self, name: str) -> None:
        obj = self.now(name)
        if obj is not None:
            self.store(name, None)
            self.answer("delete", name, None, obj["metadata"]["uid"])

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def a_write_returns(self, data: st.DataObject) -> None:
        answer = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        self.world.readers.wrote(answer.write)
        if answer.write.document is None:
            self.ended.add(answer.write.uid)
        else:
            self.returned[answer.write.name] = max(self.returned[answer.write.name], answer.version)

    # ------------------------------------------------------------------------------------------------------------------ the watch

    def arrive(self) -> None:
        self.time += 1
        self.world.feed.moved = self.time

    def deliver(self, version: int, old: JSON | None, obj: JSON, now: JSON | None) -> None:
        self.arrive()
        if self.selected(now):
            self.world.changed(obj)
        elif self.selected(old):
            self.world.removed(obj)

    @rule(count=st.integers(1, 4))
    def events_arrive(self, count: int) -> None:
        for version, name, old, obj in [each for each in self.log if each[0] > self.at][:count]:
            self.deliver(version, old, obj, self.state_at(name, version))
            self.at = version

    @rule()
    def the_last_event_arrives_again(self) -> None:
        for version, name, old, obj in [each for each in self.log if each[0] <= self.at][-1:]:
            if self.world.feed.version == str(version):
                self.deliver(version, old, obj, self.state_at(name, version))

    @rule()
    def a_bookmark_arrives(self) -> None:
        self.arrive()
        self.world.bookmark(str(self.at))

    @rule(data=st.data())
    def the_cache_lists_again(self, data: st.DataObject) -> None:
        """At any version from that of the watch on, also at a version older than own writes."""
        self.arrive()
        self.at = data.draw(st.integers(self.at, self.version))
        found = [self.state_at(name, self.at) for name in "abc"]
        self.world.listed([obj for obj in found if obj is not None and self.selected(obj)], str(self.at))

    # ------------------------------------------------------------------------------------------------------------------- the rule

    @invariant()
    def no_answer_is_older_than_an_own_write_that_returned(self) -> None:
        shown = self.world.shown()
        for name in "abc":
            seen = shown.get(name)
            possible: set[tuple[str, str] | None] = set()
            for version in range(max(self.returned[name], 0), self.version + 1):
                obj = self.state_at(name, version)
                metadata = obj["metadata"] if obj is not None and self.selected(obj) else None
                possible.add(None if metadata is None else (metadata["uid"], metadata["resourceVersion"]))
            assert seen in possible, (name, seen, possible, self.returned[name])
            assert seen is None or seen[0] not in self.ended

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        while self.at < self.version:
            self.events_arrive(4)
            self.at = max(self.at, min(self.version, self.at))
        for answer in self.answers:
            self.world.readers.wrote(answer.write)
        truth = {name: obj for name in "abc" if self.selected(obj := self.now(name)) and obj is not None}
        assert self.world.shown() == {name: (obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]) for name, obj in truth.items()}
        self.world.bookmark(str(self.version))
        assert not self.world.overlay.written


class Selecting(Overlaid):
    """The same where the informer selects by label."""

    selector = "tier=web"


@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(Overlaid, id="of everything"),
        pytest.param(Selecting, id="of what a selector chooses"),
    ],
)
def test_readers_never_see_less_than_our_own_writes_and_in_the_end_what_the_server_has_G97(machine: type[Overlaid]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=25))
