"""A member of a group of replicas that share keys: executes the protocol, and decides for its controllers which keys they own.

The protocol, and why no two replicas reconcile a key at the same time: membership.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from kubeloop.api.coordination.v1 import Lease, LeaseSpec
from kubeloop.client import Client
from kubeloop.client.options import DeleteOptions
from kubeloop.controller.election.elector import LeaseLost
from kubeloop.controller.election.fence import checked, guard
from kubeloop.controller.sharding.membership import GROUP_LABEL, PROTOCOL, SLOTS, DeclaredMember, Gained, Membership, ShardConfig, slot_of
from kubeloop.meta import Conflict, KubeloopError, NotFound, ObjectKey, ObjectMeta
from kubeloop.meta.repr import counted
from kubeloop.tasks import SupervisedTask, Supervisor
from kubeloop.timing import Clock, TimeLimit, Timer, within
from kubeloop.transport import logger_with_context

#: Annotations: the member's protocol version, and its view, a JSON list of the identities that it believes alive.
PROTOCOL_ANNOTATION = "shards.kubeloop.dev/protocol"
VIEW_ANNOTATION = "shards.kubeloop.dev/view"


class GroupLeases:
    """Reads the Leases of a group, and writes this replica's Lease. Each write requires the version that was last read or written."""

    def __init__(self, client: Client, config: ShardConfig, clock: Clock) -> None:
        self._client = client
        self._config = config
        self._lease = config.lease()
        self._clock = clock
        self._mine: Lease | None = None
        self._found: dict[str, Lease] = {}

    async def write(self, view: frozenset[str], *, given_back: bool = False) -> Lease:
        """Renew this replica's Lease with ``view``, or release it (``given_back``), and return the stored Lease.

        After a conflict, the Lease is read or created, and written once more.

        Raises:
            KubeloopError: the write failed, or its outcome is unknown.
        """
        if self._mine is not None:
            try:
                self._mine = await self._client.update(self._declaring(self._mine, view, given_back=given_back))
            except (Conflict, NotFound):
                self._mine = None
            else:
                return self._mine
        try:
            there = await self._client.get(Lease, self._lease.name, namespace=self._lease.namespace)
        except NotFound:
            metadata = ObjectMeta(name=self._lease.name, namespace=self._lease.namespace)
            self._mine = await self._client.create(self._declaring(Lease(metadata=metadata), view, given_back=given_back))
        else:
            self._mine = await self._client.update(self._declaring(there, view, given_back=given_back))
        return self._mine

    async def list(self) -> dict[str, DeclaredMember]:
        """Return the members of the group by identity, read from the server."""
        leases = await self._client.list(Lease, namespace=self._config.namespace, label_selector={GROUP_LABEL: self._config.group})
        self._found = {_member_of(lease): lease for lease in leases}
        return {member: declared_by(lease) for member, lease in self._found.items()}

    async def forget(self, member: str) -> None:
        """Delete the lease of a vanished member, if it has not changed since the list.

        Raises:
            Conflict: the lease has changed.
            Forbidden: this program lacks the permission.
        """
        lease = self._found.get(member)
        if lease is not None:
            metadata = lease.metadata
            options = DeleteOptions(uid=metadata.uid, resource_version=metadata.resource_version)
            await self._client.delete(Lease, metadata.name, namespace=metadata.namespace, options=options)

    def _declaring(self, lease: Lease, view: frozenset[str], *, given_back: bool) -> Lease:
        now, before = self._clock.wall(), lease.spec
        lease = copy.deepcopy(lease)
        lease.spec = LeaseSpec(
            holder_identity="" if given_back else self._config.identity,
            lease_duration_seconds=1 if given_back else int(self._config.lease_duration),
            acquire_time=before.acquire_time or now,
            renew_time=now,
            lease_transitions=before.lease_transitions or 0,
        )
        lease.metadata.labels[GROUP_LABEL] = self._config.group
        lease.metadata.annotations.update({PROTOCOL_ANNOTATION: PROTOCOL, VIEW_ANNOTATION: json.dumps(sorted(view))})
        lease.metadata.annotations[MEMBER_ANNOTATION] = self._config.identity
        return lease


#: Annotation with the owner of the lease; the holder is empty after a release.
MEMBER_ANNOTATION = "shards.kubeloop.dev/member"


def _member_of(lease: Lease) -> str:
    return lease.metadata.annotations.get(MEMBER_ANNOTATION) or lease.spec.holder_identity or lease.metadata.name


def declared_by(lease: Lease) -> DeclaredMember:
    """Return the member that a Lease declares. If the Lease cannot be interpreted, the member's view is None: it may claim any slot."""
    annotations = lease.metadata.annotations
    view: frozenset[str] | None = None
    if annotations.get(PROTOCOL_ANNOTATION) == PROTOCOL:
        try:
            names = json.loads(annotations.get(VIEW_ANNOTATION, ""))
        except ValueError:
            names = None
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            view = frozenset(names)
    given_back = not lease.spec.holder_identity
    # The version, not the time in it: a stopped clock must not make a member look dead.
    return DeclaredMember(
        view, f"{lease.metadata.uid}/{lease.metadata.resource_version}", float(lease.spec.lease_duration_seconds or 0), given_back
    )


_LOG = logger_with_context("kubeloop.controller.sharding")

T = TypeVar("T")

#: Leases of vanished members are deleted after so many lease durations.
_KEPT = 4


class ShardMember:
    """Makes this replica a member of a group that shares keys, from ``start`` to ``leave``. A ``Manager`` with ``sharding`` runs one.

    Guarantees
        Of all replicas of the group at most one reconciles a key at any time, within the assumptions of the protocol (membership.py).
        A key moves when the reconciles of its slot (one of 1024) have ended in its old replica, or when the lease of that replica has
        expired.
        While the members do not change, each key has a replica: about four retry periods after a member joined or left, or a lease duration
        and two retry periods after a member crashed.

    Not guaranteed
        Reconciles of an object's *deletion* during a hand-over: use finalizers. An even distribution of few keys.
        The end of a reconcile in a thread when this replica can no longer be sure of its keys.

    Cost
        One write and one list of the group's leases each ``retry_period``, for each member.

    Example:
        >>> member = ShardMember(client, ShardConfig("my-operator", client.namespace))
        >>> member.start()
        >>> await member.leave()
    """

    def __init__(self, client: Client, config: ShardConfig, *, clock: Clock | None = None) -> None:
        self.config = config
        self._clock = clock or client.clock
        self._lease = config.lease()
        self._leases = GroupLeases(client, config, self._clock)
        self._core = Membership(config.identity, config.renew_deadline)
        self._owners: list[_Owner] = []
        self._scopes: set[TimeLimit] = set()
        self._wake = asyncio.Event()
        self._timer: Timer | None = None
        self.tasks = Supervisor(self._clock, _LOG)
        self._task: SupervisedTask | None = None
        self._unguard: list[Callable[[], None]] = []
        self._complaint = ""

    def __repr__(self) -> str:
        return f'<ShardMember "{self.config.identity}" of {self.config.namespace}/{self.config.group}, {self.slots} of {SLOTS} slots>'

    @property
    def members(self) -> frozenset[str]:
        """The identities of the members that this member believes alive, itself included; for people."""
        return self._core.members

    @property
    def slots(self) -> int:
        """Number of the 1024 slots that this replica owns now."""
        return self._core.granted.bit_count() if self._clock.now() < self._core.valid_until else 0

    def of(self, controller: str) -> _Owner:
        """Return the ownership of one controller's keys. Controllers are distributed independently."""
        owner = _Owner(self, controller)
        self._owners.append(owner)
        return owner

    def cover(self, client: Client) -> None:
        """Guard ``client`` until this member has left: writes of a reconcile are not sent if this replica may no longer own the key."""
        self._unguard.append(guard(client))

    def start(self) -> None:
        """Join the group. First pass every client that reconciles write with to ``cover``."""
        self._task = self.tasks.start(self._run, name=f"shard-{self.config.group}")

    async def leave(self, *, give_back: bool = True) -> None:
        """Leave the group: allow no new reconcile, and release the Lease. If a reconcile still runs, the Lease is left to expire instead.

        Call this method when the controllers have stopped. Pass ``give_back=False`` if work of them (a thread) still runs: the Lease is not
        released, and writes of that work are refused once the Lease has expired. Errors of the server are not raised.
        """
        task, self._task = self._task, None
        if task is not None:
            self._core.retire()
            await task.stop()
        if self._timer is not None:
            self._timer.cancel()
        if self._core.busy:
            busy = counted(self._core.busy, "reconcile")
            _LOG.warning("leaving group %s with %s still running: the lease will expire", self.config.group, busy)
            return
        if not give_back:
            return
        for unguard in self._unguard:
            unguard()
        if task is None:
            return
        try:
            await within(self._clock, self.config.renew_deadline, self._leases.write(frozenset(), given_back=True))
        except (KubeloopError, TimeoutError) as error:
            _LOG.warning("lease %s could not be released: %s", self._lease, str(error) or "no answer in time")

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            done = await self._turn()
            if done and not self._core.settled and not self._core.waits_for_reconciles:
                continue  # The members have changed: write the new view immediately.
            with contextlib.suppress(TimeoutError):
                await within(self._clock, self.config.retry_period, self._wake.wait())

    async def _turn(self) -> bool:
        core, clock = self._core, self._clock
        before = core.members
        view = core.to_write(clock.now())
        if await self._ask(self._leases.write(view), "cannot be written") is None:
            core.unknown()
            return False
        core.written()
        started = clock.now()
        found = await self._ask(self._leases.list(), "cannot be listed")
        if found is None:
            return False
        gained = core.listed(started, clock.now(), found)
        self._complaint = ""
        if core.members != before:
            _LOG.info("group %s: %s: %s", self.config.group, counted(len(core.members), "member"), ", ".join(sorted(core.members)))
        self._watch_over()
        if gained:
            _LOG.log(logging.DEBUG, "group %s: %d slots gained, %d in all", self.config.group, gained.bit_count(), self.slots)
            for owner in self._owners:
                owner.gained(gained)
        await self._tidy()
        return True

    async def _ask(self, work: Awaitable[T], problem: str) -> T | None:
        """Await a request and return its result. If it fails, log the problem and return None."""
        try:
            return await within(self._clock, self._lease.request_timeout, work)
        except (KubeloopError, TimeoutError) as error:
            complaint = f"{problem}: {str(error) or 'no answer in time'}"
            if complaint != self._complaint:
                _LOG.warning("leases of group %s in %s %s; retrying", self.config.group, self.config.namespace, complaint)
            self._complaint = complaint
            return None

    def _watch_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(max(self._core.valid_until - self._clock.now(), 0.0), self._lapsed)

    def _lapsed(self) -> None:
        if self._clock.now() < self._core.valid_until:
            return
        self._core.lapse()
        # A reconcile is cancelled once, even if it takes long to end.
        scopes, self._scopes = self._scopes, set()
        _LOG.error(
            "group %s: not renewed for %g s: this replica has no keys until it is; %s cancelled",
            self.config.group,
            self.config.renew_deadline,
            counted(len(scopes), "reconcile"),
        )
        for scope in scopes:
            scope.end()

    async def _tidy(self) -> None:
        """Delete the Leases of members that vanished long ago, if this member is the one with the smallest identity."""
        if self.config.identity != min(self._core.members, default=""):
            return
        for member in self._core.gone(self._clock.now(), _KEPT * self.config.lease_duration):
            try:
                await within(self._clock, self._lease.request_timeout, self._leases.forget(member))
            except (KubeloopError, TimeoutError) as error:
                _LOG.debug("lease of %s is not moved: %s", member, error)

    # For ``_Owner``

    def has(self, slot: int) -> bool:
        return self._core.has(slot, self._clock.now())

    async def _hold(self, slot: int, work: Callable[[], Awaitable[T]]) -> T | None:
        """Run ``work`` while this replica owns the slot. Return its result, or None if the slot is not owned or was lost."""
        core = self._core
        if not core.begin(slot, self._clock.now()):
            return None
        scope = TimeLimit(self._clock, None)
        try:
            async with scope:
                self._scopes.add(scope)
                try:
                    with checked(partial(self._assert_valid, core.term)):
                        return await work()
                finally:
                    self._scopes.discard(scope)
        except TimeoutError:
            if scope.expired:
                return None
            raise
        finally:
            if core.end(slot):
                self._wake.set()

    def _assert_valid(self, term: int) -> None:
        # Work that outlives its cancellation (a thread) is not covered by a later term: another member may have owned its key in between.
        if self._clock.now() >= self._core.valid_until or term != self._core.term:
            raise LeaseLost(f"lease {self._lease} was not renewed in time: this replica cannot be sure of its keys")


class _Owner:
    """The ``Ownership`` of one controller's keys."""

    def __init__(self, member: ShardMember, controller: str) -> None:
        self._member = member
        self._controller = controller
        self._callbacks: list[Gained] = []

    def slot(self, key: ObjectKey) -> int:
        return slot_of(f"{self._controller}/{self._member.config.by(key)}")

    def owns(self, key: ObjectKey) -> bool:
        return self._member.has(self.slot(key))

    def guarded(self, reconcile: Callable[[ObjectKey], Awaitable[T]]) -> Callable[[ObjectKey], Awaitable[T | None]]:
        async def guarded(key: ObjectKey) -> T | None:
            return await self._member._hold(self.slot(key), lambda: reconcile(key))

        return guarded

    def on_gained(self, callback: Gained) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def gained(self, slots: int) -> None:
        for callback in list(self._callbacks):
            try:
                callback(lambda key: bool(slots >> self.slot(key) & 1))
            except Exception:  # noqa: BLE001 - logged
                _LOG.exception("controller %s: the keys of the gained slots could not be enqueued", self._controller)
