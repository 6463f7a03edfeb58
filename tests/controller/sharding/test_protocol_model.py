"""The hand-over protocol against a model of the world: requests lost, late, or answered late, crashes, leaves, clocks of other speeds.

In every history no two members reconcile in one slot; and when the world comes to rest each slot has exactly one member.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.controller.sharding.membership import SLOTS, DeclaredMember, Membership

LEASE, RENEW, CANCEL = 15.0, 10.0, 1.0
#: Slots in which work is done. They belong to different members in most views.
WATCHED = (0, 1, 2, 3, 4, 5)
SPEEDS = (1.0, 0.9, 1.1)


@dataclass
class Stored:
    view: frozenset[str]
    left: bool
    mark: int


@dataclass
class Sent:
    """A write on its way. ``stored``: None, it has not arrived; else whether the server took it."""

    who: Member
    base: int
    view: frozenset[str]
    left: bool
    stored: int | None = None
    refused: bool = False


@dataclass
class Member:
    core: Membership
    speed: float
    base: int = 0  # The version of its lease that it knows of; 0: it has none.
    writing: Sent | None = None
    listing: bool = False  # The write was acknowledged, the list is next.
    list_sent: tuple[float, dict[str, DeclaredMember]] | None = None
    running: list[int] = field(default_factory=list)
    leaving: bool = False
    over: bool = False

    @property
    def name(self) -> str:
        return self.core.me


class World:
    """One history. What happens next is drawn from ``rng``: mostly what members do all the time, sometimes a misfortune."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.time = 100.0
        self.marks = 0
        self.leases: dict[str, Stored] = {}
        self.everyone: list[Member] = []
        self.on_the_way: list[Sent] = []

    def step(self) -> None:
        living = [one for one in self.everyone if not one.over]
        if len(living) < 2 or (len(living) < 4 and len(self.everyone) < 8 and self.rng.random() < 0.02):
            self.join()
            return
        one = self.rng.choice(living)
        turns = (self.turn,) * 8
        usual = (*turns, self.write, self.arrive_one, self.answer, self.ask_list, self.answer_list, self.begin, self.begin, self.end)
        unusual = (self.cancel, self.give_up_list, self.leave, self.crash, self.collect)
        chance = self.rng.random()
        if chance < 0.15:
            self.pass_time(self.rng.choice((0.1, 0.5, 1.0, 2.0, 5.0, 5.0, 16.0)))
        elif chance < 0.92 or (chance > 0.94 and len(self.everyone) >= 8):
            self.rng.choice(usual)(one)
        else:
            self.rng.choice(unusual)(one)

    def now(self, member: Member) -> float:
        return self.time * member.speed

    def declared(self) -> dict[str, DeclaredMember]:
        return {name: DeclaredMember(it.view, str(it.mark), 1.0 if it.left else LEASE, it.left) for name, it in self.leases.items()}

    # What members do

    def join(self) -> None:
        self.everyone.append(Member(Membership(f"member-{len(self.everyone)}", RENEW), self.rng.choice(SPEEDS)))

    def write(self, member: Member) -> Sent | None:
        """Begin a turn, reading the lease first."""
        if member.writing is not None or member.listing:
            return None
        stored = self.leases.get(member.name)
        member.base = stored.mark if stored is not None else 0
        view = member.core.to_write(self.now(member))
        sent = member.writing = Sent(member, member.base, view, left=member.leaving and not member.running)
        self.on_the_way.append(sent)
        return sent

    def arrive_one(self, _: Member) -> None:
        """At the server, sooner or later, in any order, perhaps long after its caller stopped waiting for it."""
        if self.on_the_way:
            self.arrive(self.rng.choice(self.on_the_way))

    def arrive(self, sent: Sent) -> None:
        self.on_the_way.remove(sent)
        stored = self.leases.get(sent.who.name)
        if (stored.mark if stored is not None else 0) != sent.base:
            sent.refused = True
            return
        self.marks += 1
        sent.stored = self.marks
        self.leases[sent.who.name] = Stored(sent.view, sent.left, self.marks)

    def answer(self, member: Member) -> None:
        sent = member.writing
        if sent is None:
            return
        if sent.refused:
            member.core.unknown()
            member.writing = None
        elif sent.stored is not None:
            member.core.written()
            member.writing = None
            member.listing = True
            member.over = sent.left

    def cancel(self, member: Member) -> None:
        """No answer in time; the write may still be on its way."""
        if member.writing is not None:
            member.core.unknown()
            member.writing = None

    def ask_list(self, member: Member) -> None:
        if member.listing and member.list_sent is None:
            member.list_sent = self.now(member), self.declared()

    def answer_list(self, member: Member) -> None:
        if member.list_sent is not None:
            started, found = member.list_sent
            member.core.listed(started, self.now(member), found)
            member.listing, member.list_sent = False, None

    def give_up_list(self, member: Member) -> None:
        member.listing, member.list_sent = False, None

    def begin(self, member: Member) -> None:
        """Wherever it may."""
        for slot in WATCHED:
            if slot not in member.running and member.core.begin(slot, self.now(member)):
                member.running.append(slot)

    def end(self, member: Member) -> None:
        if member.running:
            member.core.end(member.running.pop(self.rng.randrange(len(member.running))))

    def turn(self, member: Member) -> None:
        """A whole one, undisturbed."""
        sent = self.write(member)
        if sent is not None:
            self.arrive(sent)
            self.answer(member)
            self.ask_list(member)
            self.answer_list(member)

    def leave(self, member: Member) -> None:
        member.leaving = True
        member.core.retire()

    def crash(self, member: Member) -> None:
        member.over, member.running = True, []

    def collect(self, member: Member) -> None:
        """Leases of members that left long ago are deleted."""
        for name in member.core.gone(self.now(member), 30.0):
            self.leases.pop(name, None)

    def pass_time(self, seconds: float) -> None:
        """What has lost its right is cancelled, and has ended a second later."""
        until = self.time + seconds
        while self.time < until:
            self.time = min(self.time + 0.1, until)
            for one in self.everyone:
                while one.running and self.now(one) >= one.core.valid_until + CANCEL:
                    one.core.end(one.running.pop())
            self.no_slot_is_worked_on_by_two()

    def no_slot_is_worked_on_by_two(self) -> None:
        for slot in WATCHED:
            workers = [one.name for one in self.everyone if slot in one.running]
            assert len(workers) <= 1, (slot, workers)

    def come_to_rest(self) -> None:
        """Everybody does turns, and nothing else happens."""
        living = [one for one in self.everyone if not one.over and not one.leaving]
        for one in self.everyone:
            self.cancel(one)
            self.give_up_list(one)
            one.over = one.over or one.leaving
        self.on_the_way.clear()
        for _ in range(40):
            for one in living:
                self.turn(one)
                self.begin(one)
                while one.running:
                    self.end(one)
            self.pass_time(1.0)
        for slot in range(0, SLOTS, 37):
            owners = [one.name for one in living if one.core.has(slot, self.now(one))]
            assert len(owners) == (1 if living else 0), (slot, owners)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_no_two_members_reconcile_in_one_slot_and_each_slot_is_had_in_the_end(seed: int) -> None:
    world = World(random.Random(seed))
    for _ in range(400):
        world.step()
        world.no_slot_is_worked_on_by_two()
    for one in world.everyone:
        if one.leaving:
            one.running.clear()
    world.come_to_rest()
