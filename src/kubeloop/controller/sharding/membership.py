"""The protocol by which replicas hand over slots, without I/O and clock: its rules, why they are correct, and its assumptions.

Each member has a Lease. With each renewal it writes its *view* into the Lease: the set of members that it believes alive. A view claims for
its writer the slots that rendezvous hashing over this set gives to the writer. A *turn* of a member is: write the Lease, then list all
Leases of the group.

A member *has* a slot, which means that it may begin reconciles of the slot's keys, if the following holds by its last complete turn:
  (1) The view that it has written claims the slot, and so does the view that it would write next.
  (2) In the list that it read after the write, no other living member's view claims the slot.
  (3) Less than ``renew_deadline`` seconds have passed since it sent that write, by the local monotonic clock.
A member writes a view that gives up slots only when none of its reconciles runs in these slots. Reconciles that run when (3) ends are
cancelled. A member i is dead for a member j if i's Lease was released, or if j has not seen i's Lease change for the duration that the
Lease states, measured on j's clock.

Safety: no two members have the same slot. Suppose that i and j both have it. Both have written a view that claims the slot; let j's write
be the later one in the server's order. j has listed after its write, so it saw i's claim: i gives the slot up only with its next view, and
by (1) it would no longer have the slot then. So by (2) i was dead for j: either i's Lease did not change for a lease duration on j's clock,
or i released it, which it does only when none of its reconciles runs. Then i sent its last write at least a lease duration ago, so (3) had
ended for i ``lease_duration - renew_deadline`` seconds earlier. If i writes again, it has no slot until it has listed the Leases after that
write, and then it sees j's claim. A write without a response may have been executed, or may be executed later. By (1) a member no longer
has the slots that such a write gives up when it sends the write, and it has the slots that the write gains only after the server has
acknowledged a write. Each write requires the version before it, so a late write cannot undo a later one.

Liveness: while no member joins or leaves, all views become the same set, which gives each slot to one member. A member that must give up a
slot does so when its reconciles in the slot have ended, and the new owner sees this in its next turn.

Assumptions: clocks run at speeds that differ by less than lease_duration / renew_deadline; a cancelled reconcile ends within the difference
of the two (a thread does not); a list is read from the newest state; identities are unique; no other program deletes or edits the Leases.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol, TypeVar

from kubeloop.controller.election.lease import LeaseConfig, unique_identity
from kubeloop.meta import ConfigError, ObjectKey

_GROUP = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


def by_object(key: ObjectKey) -> str:
    """Return a different text for each object, for the most even distribution."""
    # Without the cluster, which replicas may know by different names.
    return f"{key.namespace}/{key.name}"


def by_namespace(key: ObjectKey) -> str:
    """Return the namespace, so that one replica reconciles all objects of a namespace."""
    return key.namespace


@dataclass(frozen=True, slots=True)
class ShardConfig:
    """A group of replicas that share keys, and this replica's part in it. Times are in seconds, as in ``LeaseConfig``.

    Args:
        group: Name of the group; the same for all replicas of a program, and unique in ``namespace``. Each replica has a Lease there with
            the label ``shards.kubeloop.dev/group``, named after group and identity.
        namespace: Namespace of the leases.
        identity: Name of this replica, which must differ between replicas. Default: ``unique_identity()``.
        lease_duration: See ``LeaseConfig``.
        renew_deadline: See ``LeaseConfig``.
        retry_period: See ``LeaseConfig``.
        by: Returns the text that decides which replica gets a key; the same function in all replicas. With ``by_namespace`` the objects of
            one namespace stay together.

    Raises:
        ConfigError: see ``LeaseConfig``; or the group is not valid in a label and as the prefix of a name.

    Example:
        >>> from kubeloop import Manager
        >>> manager = Manager(client, sharding=ShardConfig("my-operator", client.namespace, by=by_namespace))
    """

    group: str
    namespace: str
    identity: str = field(default_factory=unique_identity)
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    by: Callable[[ObjectKey], str] = by_object

    def __post_init__(self) -> None:
        if not _GROUP.fullmatch(self.group):
            raise ConfigError(f"sharding: group must be 1 to 40 lower case letters, digits and '-', not {self.group!r}")
        self.lease()

    def lease(self) -> LeaseConfig:
        """Return the configuration of this replica's Lease.

        Raises:
            ConfigError: the times or the namespace are invalid.
        """
        # A valid name for any identity, of any length and with any characters.
        name = f"{self.group}-{blake2b(self.identity.encode(), digest_size=8).hexdigest()}"
        times = (self.lease_duration, self.renew_deadline, self.retry_period)
        return LeaseConfig(name, self.namespace, self.identity, *times, labels={GROUP_LABEL: self.group})


#: The label by which the leases of a group are found.
GROUP_LABEL = "shards.kubeloop.dev/group"


T = TypeVar("T")

Gained = Callable[[Callable[[ObjectKey], bool]], None]
"""A callback for ``Ownership.on_gained``. It gets a predicate that accepts the gained keys, and enqueues the existing keys among them."""


class Ownership(Protocol):
    """Decides which keys of one controller belong to this replica. Use it in the event loop's thread only."""

    def owns(self, key: ObjectKey) -> bool:
        """Return whether ``key`` belongs to this replica now. The result may change at any time."""

    def guarded(self, reconcile: Callable[[ObjectKey], Awaitable[T]]) -> Callable[[ObjectKey], Awaitable[T | None]]:
        """Wrap ``reconcile`` so that it is called for owned keys only, and returns None for others.

        A running call keeps its key in this replica. If the replica can no longer be sure of its keys, the call is cancelled and None is
        returned: the next owner reconciles the key again.
        """

    def on_gained(self, callback: Gained) -> Callable[[], None]:
        """Call ``callback`` whenever this replica gains keys, since their earlier events were filtered out.

        Returns:
            A function that removes the callback.
        """


# The owner of a key: keys are hashed to slots, and slots are assigned to members by rendezvous hashing.
#
# If a member joins, slots move only to it; if one leaves, only its slots move (Thaler and Ravishankar 1998). Every replica must compute the
# same, whatever its version: change nothing here without raising ``PROTOCOL``.


#: Version of this function and of the lease's format. Members of another version are assumed to claim every slot.
PROTOCOL = "1"

#: Number of slots. A thousand keep ten members balanced within a few per cent, and a view takes 10 ms to compute.
SLOTS = 1024

#: A set of slots is an integer, one bit for each.
EVERY_SLOT = (1 << SLOTS) - 1


def slot_of(text: str) -> int:
    """Return the slot of a key's text. Stable over processes and versions of Python."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") % SLOTS


def claim(members: frozenset[str], member: str) -> int:
    """Return the slots of ``member`` among ``members`` as a bit mask; 0 if it is not one of them."""
    return _table(members).get(member, 0)


@lru_cache(maxsize=64)
def _table(members: frozenset[str]) -> dict[str, int]:
    """Return the slots of each member as a bit mask.

    Each slot belongs to the member with the highest hash for it (rendezvous hashing); ties go to the greater name.
    """
    names = sorted(members)
    seeds = [blake2b(name.encode("utf-8", "surrogatepass"), digest_size=32).digest() for name in names]
    slots = dict.fromkeys(names, 0)
    for slot in range(SLOTS):
        number = slot.to_bytes(2, "big")
        best = max(range(len(names)), key=lambda place: (blake2b(number, digest_size=8, key=seeds[place]).digest(), place), default=None)
        if best is not None:
            slots[names[best]] |= 1 << slot
    return slots


@dataclass(frozen=True, slots=True)
class DeclaredMember:
    """The content of a member's lease.

    ``view`` is None if an unknown protocol version wrote it, which may claim any slot. ``mark`` changes with each write (a
    resourceVersion). ``duration`` is in seconds. ``given_back``: the lease was released.
    """

    view: frozenset[str] | None
    mark: str
    duration: float
    given_back: bool = False

    def claims(self, member: str) -> int:
        if self.given_back:
            return 0
        return EVERY_SLOT if self.view is None else claim(self.view, member)


@dataclass(frozen=True, slots=True)
class _Peer:
    """Another member as last seen. ``at`` is the local monotonic time at which it was first seen in this state."""

    declared: DeclaredMember
    at: float

    def alive(self, now: float) -> bool:
        return not self.declared.given_back and self.at + self.declared.duration > now


class Membership:
    """The protocol of one member. The caller repeats: ``to_write``, the write, ``written`` or ``unknown``, the list, ``listed``.

    ``me`` is its identity, ``renew_deadline`` in seconds. Times are of one monotonic clock.
    """

    def __init__(self, me: str, renew_deadline: float) -> None:
        self.me = me
        #: Time at which all slots are lost, unless a turn is completed before.
        self.valid_until = 0.0
        #: Number of the term. It rises when slots are owned again after all were lost; work of an earlier term is not covered.
        self.term = 0
        self._renew_deadline = renew_deadline
        self._published: frozenset[str] = frozenset()
        self._target: frozenset[str] = frozenset()
        self._writing: tuple[frozenset[str], float] | None = None
        self._sent: float | None = None  # Time of the write that the next list follows.
        self._peers: dict[str, _Peer] = {}
        self._granted = 0
        self._retired = False
        self._busy: dict[int, int] = {}

    def has(self, slot: int, now: float) -> bool:
        """Return whether a reconcile in this slot may begin."""
        return now < self.valid_until and bool(self._granted >> slot & 1)

    def begin(self, slot: int, now: float) -> bool:
        """Record the start of a reconcile in this slot, if it may begin. Return whether it may; if so, ``end`` must be called later."""
        if not self.has(slot, now):
            return False
        self._busy[slot] = self._busy.get(slot, 0) + 1
        return True

    def end(self, slot: int) -> bool:
        """Record the end of a reconcile. Return whether a hand-over waited for it."""
        given_back = self._busy[slot] - 1
        if given_back:
            self._busy[slot] = given_back
            return False
        del self._busy[slot]
        return bool(self._lost >> slot & 1) and not self._held_back

    def to_write(self, now: float) -> frozenset[str]:
        """Return the members that this replica's next renewal of its Lease declares alive, and remember them as the pending write.

        ``now`` is the time at which the renewal is sent. Call ``written`` or ``unknown`` with its outcome.
        """
        view = self._published if self._held_back else self._target
        self._writing = view, now
        return view

    def written(self) -> None:
        """Record that the server has stored the view."""
        assert self._writing is not None
        self._published, self._sent = self._writing
        self._writing = None

    def unknown(self) -> None:
        """Record a write that failed or has an unknown outcome.

        Slots that the view releases count as released, slots that it gains as not gained yet.
        """
        self._writing = None
        self._sent = None

    def listed(self, started: float, now: float, members: Mapping[str, DeclaredMember]) -> int:
        """Process a list that was started after ``written``, and ended ``now``. Return the gained slots as bits."""
        sent, self._sent = self._sent, None
        mine = members.get(self.me)
        for name, declared in members.items():
            seen = self._peers.get(name)
            if name != self.me and (seen is None or seen.declared.mark != declared.mark):
                self._peers[name] = _Peer(declared, now)
        # A vanished member counts until it has expired, unless its release was seen: another program may have deleted its lease.
        self._peers = {name: peer for name, peer in self._peers.items() if name in members or peer.alive(started)}
        alive = {name: peer for name, peer in self._peers.items() if peer.alive(started)}
        self._target = frozenset() if self._retired else frozenset((self.me, *alive))
        if sent is None or mine is None or mine.given_back or mine.view != self._published:
            # Our lease differs from our write, so the others may have assumed that we left. Start over.
            self.lapse()
            return 0
        granted = claim(self._published, self.me) & claim(self._target, self.me)
        for name, peer in alive.items():
            granted &= ~peer.declared.claims(name)
        unbroken = now < self.valid_until
        self.term += not unbroken
        before = self._granted if unbroken else 0
        self._granted, self.valid_until = granted, sent + self._renew_deadline
        return granted & ~before if now < self.valid_until else 0

    def lapse(self) -> None:
        """Give up all slots until a complete turn has succeeded."""
        self._granted, self.valid_until = 0, 0.0

    def retire(self) -> None:
        """Permanently stop accepting slots and release each when its work ends."""
        self._retired = True
        self._target = frozenset()
        self._granted = 0

    @property
    def settled(self) -> bool:
        """Whether the last written view is the desired one."""
        return self._published == self._target

    @property
    def waits_for_reconciles(self) -> bool:
        """Whether a new view waits for reconciles to end."""
        return self._held_back

    @property
    def busy(self) -> int:
        """Number of running reconciles."""
        return sum(self._busy.values())

    @property
    def granted(self) -> int:
        """The owned slots as bits, until ``valid_until``."""
        return self._granted

    @property
    def members(self) -> frozenset[str]:
        """The members that were last believed alive, including this one."""
        return self._target

    def gone(self, now: float, for_seconds: float) -> list[str]:
        """Return the members that left or expired so long ago that their leases can be deleted."""
        return [
            name
            for name, peer in self._peers.items()
            if not peer.alive(now) and now - peer.at >= for_seconds + (0 if peer.declared.given_back else peer.declared.duration)
        ]

    @property
    def _lost(self) -> int:
        """The slots that the written view claims and the desired view does not."""
        return claim(self._published, self.me) & ~claim(self._target, self.me)

    @property
    def _held_back(self) -> bool:
        lost = self._lost
        return bool(lost) and any(lost >> slot & 1 for slot in self._busy)
