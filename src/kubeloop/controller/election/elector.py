"""Leader election with a Lease: one of several candidates leads, and determines by its own clock until when it may act as leader.

Rules: lease.py; source: client-go tools/leaderelection. ``LeaderElector`` lists its limits: read them before you rely on it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from kubeloop.api.coordination.v1 import Lease
from kubeloop.client import Client
from kubeloop.controller.election.fence import fenced
from kubeloop.controller.election.lease import (
    JITTER,
    LeaseConfig,
    LeaseHeld,
    LeaseLock,
    LeaseObservation,
    LeaseRecord,
    LeaseRefused,
    LeaseWrite,
    after_coordinated_read,
    after_read,
    first,
    released,
    renewed,
)
from kubeloop.meta import AlreadyExists, Conflict, KubeloopError, NotFound
from kubeloop.timing import Clock, within
from kubeloop.transport import log_context, logger_with_context

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_LOG = logger_with_context("kubeloop.controller.election")

T = TypeVar("T")

#: Seconds after the end of the lease at which a leader that has not noticed its loss is unhealthy (controller-runtime's 20 s).
TOLERANCE = 20.0
#: Seconds between attempts to release a lease that another program writes to.
PAUSE = 0.1


class LeaseLost(KubeloopError):
    """This process does not lead any more, or cannot be sure that it does."""


class Announcements(Protocol):
    """The part of an ``EventRecorder`` that an elector uses: it records "became leader" and "stopped leading" as events of the Lease."""

    def normal(self, obj: Lease, reason: str, message: str) -> None: ...


class LeaderElector:
    """One candidate for one Lease.

    Guarantees
        ``is_leader`` becomes False at the latest ``renew_deadline`` seconds after the last renewal was *sent*, by the local monotonic
        clock, even if the event loop is blocked: it is computed at each access, in any thread. Other candidates wait ``lease_duration``,
        which is longer.
        A lost lease is not reacquired silently: ``renew`` raises ``LeaseLost``, even if the event loop was blocked for too long and the
        server has no other leader.
        Times of other machines are never compared with the local clock; changes of the time of day have no effect.
        A request takes at most half of ``renew_deadline``, and is cancelled when the deadline passes.

    Not guaranteed
        That no other process acts: a lease is not a fence. A request that was sent while this process led may be executed when another
        process leads; so may work that continues without a call of ``assert_leading`` (client-go has the same limit). To exclude that,
        write with the resourceVersion that was read (``update`` does), or store ``transitions`` with each write and refuse lower ones.
        A single leader, if clocks run at speeds that differ by more than lease_duration / renew_deadline (1.5); if a machine is suspended
        and its monotonic clock stands still (a frozen VM), until the next request of this process; if people delete or edit the Lease; or
        if candidates share an identity.

    Cost
        Each ``retry_period``: one small write for the leader, one read for each other candidate.

    Args:
        client: The client of the cluster.
        config: The Lease, and this candidate.
        clock: Clock of delays and deadlines. None: the client's.
        on_new_leader: Called once per observed change with the identity of the leader, this process included; with "" when the lease was
            released and has no new holder yet.
        announcements: Records "became leader" and "stopped leading", such as an ``EventRecorder``. None: no records.
        rng: Source of jitter. None: a new ``random.Random``.

    Example:
        >>> async def work() -> None:
        ...     print("leading")
        >>> elector = LeaderElector(client, LeaseConfig("my-operator", client.namespace))
        >>> await elector.run(work)  # cancels work and raises LeaseLost when the lease is lost
        leading
    """

    def __init__(
        self,
        client: Client,
        config: LeaseConfig,
        *,
        clock: Clock | None = None,
        on_new_leader: Callable[[str], object] | None = None,
        announcements: Announcements | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.config = config
        #: Number of renewals that needed a read first, as client-go counts them.
        self.slow_renewals = 0
        self._client = client
        self._lock = LeaseLock(client, config)
        self._clock = clock or client.clock
        self._on_new_leader = on_new_leader
        self._announcements = announcements
        self._rng = rng or random.Random()
        self._seen: LeaseObservation | None = None
        self._reported = ""
        self._leads = False
        self._renewed = 0.0  # When the last successful write was sent.
        self._complaint = ""

    def __repr__(self) -> str:
        return f'<LeaderElector "{self.config.identity}" for {self.config}, {"leads" if self.is_leader else "does not lead"}>'

    @property
    def is_leader(self) -> bool:
        """Whether this process may act as leader now. The check is cheap, and correct in any thread."""
        return self._leads and self._clock.now() < self._renewed + self.config.renew_deadline

    @property
    def leads_until(self) -> float:
        """Time on the local monotonic clock at which leadership ends unless it is renewed; 0.0 if this process does not lead."""
        return self._renewed + self.config.renew_deadline if self._leads else 0.0

    @property
    def leader(self) -> str:
        """The last known leader; "" if there was none. For people: it may be out of date."""
        return self._seen.record.holder if self._seen is not None else ""

    @property
    def transitions(self) -> int:
        """Number of changes of the holder when the lease was last read. While this process leads, the number identifies its term.

        The number grows with each new holder, so that a store can reject late writes of earlier holders. It starts over if the Lease is
        deleted.
        """
        return self._seen.record.transitions if self._seen is not None else 0

    @property
    def log_fields(self) -> dict[str, str]:
        """Fields for ``log_context``: the lease and its term, so that logs of two leaders can be distinguished."""
        return {"lease": str(self.config), "lease_transitions": str(self.transitions)}

    def assert_leading(self) -> None:
        """Check leadership right before work that only a leader may do.

        Raises:
            LeaseLost: this process does not lead, or has not renewed in time.
        """
        if not self.is_leader:
            raise LeaseLost(self._loss() if self._leads else f'"{self.config.identity}" does not lead ({self.config})')

    def check(self, tolerance: float = TOLERANCE) -> None:
        """Check that this process does not count itself as leader long after its lease has expired. For health checks.

        Raises:
            LeaseLost: the last renewal is older than the lease duration plus ``tolerance`` seconds.
        """
        # Behaviour I128.
        if self._leads and self._clock.now() - self._renewed > self.config.lease_duration + tolerance:
            raise LeaseLost(f"failed election to renew leadership on lease {self.config.name}")

    @contextmanager
    def leading(self, *clients: Client) -> Iterator[None]:
        """Mark the block, and tasks started in it, as the work of a leader.

        Its log records carry the term. Its writes through ``clients`` (default: this elector's client) are refused with ``LeaseLost``,
        without being sent, from the moment at which this process does not lead any more. So a reconcile that continues after a suspension
        of the process cannot write.

        Reads are not checked, nor are writes of tasks that were started elsewhere. Requests that were sent before may still be executed.
        """
        with log_context(**self.log_fields), fenced(self.assert_leading, clients or (self._client,)):
            yield

    def metrics(self, registry: CollectorRegistry | None = None) -> Callable[[], None]:
        """Export client-go's metrics ``leader_election_master_status{name}`` and ``leader_election_slowpath_total{name}``.

        Args:
            registry: The Prometheus registry. None: prometheus_client's default one.

        Returns:
            A function that stops the export of this elector.
        """
        from kubeloop.controller.metrics import show_elector

        return show_elector(self, registry)

    async def acquire(self) -> None:
        """Try to acquire the lease until this process leads. Errors of the server are logged and retried without a time limit."""
        _LOG.info("standing for election: %s as %s", self.config, self.config.identity)
        while not await self._win():
            await self._clock.sleep(self.config.retry_period * (1 + JITTER * self._rng.random()))

    async def renew(self) -> NoReturn:
        """Renew the lease until it is lost. To stop, cancel the call, and call ``release`` when the protected work has ended.

        Raises:
            LeaseLost: this process does not lead any more, or has not been able to renew within ``renew_deadline``.
        """
        try:
            while True:
                await self._clock.sleep(max(0.0, min(self.config.retry_period, self.leads_until - self._clock.now())))
                if not self.is_leader:
                    raise LeaseLost(self._loss())
                await self._attempt(self.leads_until)
        except LeaseLost as error:
            self._end_term()
            _LOG.log(logging.ERROR, "%s", error)
            raise

    async def release(self) -> bool:
        """Release the Lease if this process holds it, even if a cancelled request acquired it.

        Call this method only when all protected work has ended. It tries for at most ``renew_deadline`` seconds, and reads the Lease again
        if a write of this process is still in flight. Errors of the server are logged, not raised.

        Returns:
            True if this process does not hold the Lease any more, so that other candidates need not wait; False if the release failed.
        """
        # Behaviours I125, I126.
        self._end_term()
        try:
            return await within(self._clock, self.config.renew_deadline, self._release())
        except KubeloopError as error:
            _LOG.warning("lease %s could not be released: %s", self.config, error)
        except TimeoutError:
            _LOG.warning("lease %s could not be released within %g s", self.config, self.config.renew_deadline)
        return False

    async def run(
        self, on_started_leading: Callable[[], Awaitable[object]], on_stopped_leading: Callable[[], object] | None = None
    ) -> None:
        """Stand for election and lead, until ``on_started_leading`` returns or raises, the lease is lost, or the call is cancelled.

        ``on_started_leading`` is cancelled when leadership ends, and awaited; after that the lease is released (``release_on_stop``), and
        ``on_stopped_leading`` is called in any case, even if this process never led.

        Raises:
            LeaseLost: see ``renew``.
        """
        # Behaviour I127.
        working: asyncio.Task[object] | None = None

        async def work() -> object:
            with self.leading():
                return await on_started_leading()

        try:
            await self.acquire()
            working = asyncio.create_task(work(), name=f"leading-{self.config.name}")
            await self._lead(working)
        finally:
            try:
                # The next leader must not overlap with our work: if it did not end because a second cancellation cut the wait
                # for it short, others wait for the lease to expire.
                if self.config.release_on_stop and (working is None or working.done()):
                    await self.release()
            finally:
                self._end_term()
                if on_stopped_leading is not None:
                    on_stopped_leading()

    async def _lead(self, working: asyncio.Task[object]) -> None:
        renewing = asyncio.create_task(self.renew(), name=f"renewing-{self.config.name}")
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                await _end(working)  # The lease is renewed until the work has ended.
            finally:
                await _end(renewing)
        failure = None if working.cancelled() else working.exception()
        if not renewing.cancelled():
            if failure is not None:
                _LOG.error("the work of the leader ended with %s: %s", type(failure).__name__, failure)
            renewing.result()
        if failure is not None:
            raise failure

    async def _win(self) -> bool:
        if not await self._attempt(self._clock.now() + self.config.renew_deadline):
            return False
        self._leads = True
        if not self.is_leader:  # The response came too late, because this process was suspended.
            self._leads = False
            return False
        _LOG.info("became leader: %s as %s, term %d", self.config, self.config.identity, self.transitions)
        self._announce("became leader")
        return True

    async def _attempt(self, until: float) -> bool:
        """Try once to get or renew the lease. Return whether the Lease was written.

        Raises:
            LeaseLost: this process led, and the server's record shows that its term is over.
        """
        try:
            return await within(self._clock, until - self._clock.now(), self._try())
        except TimeoutError:
            return False
        finally:
            self._report()

    async def _try(self) -> bool:
        config, clock = self.config, self._clock
        duration = int(config.lease_duration)
        mine = self._seen.record if self._leads and self._seen is not None else None
        # An undisturbed leader needs no read (behaviour I124).
        if mine is not None and not config.coordinated and await self._write(renewed(mine, duration, clock.wall())):
            return True
        started = clock.now()
        try:
            record = await self._request(self._lock.read())
        except NotFound:
            if config.coordinated:
                self._complain("", "the server has made none yet")
                return False
            # A leader whose lease was deleted keeps its term.
            wall = clock.wall()
            return await self._write(renewed(mine, duration, wall) if mine else first(config.identity, duration, wall), create=True)
        except (KubeloopError, TimeoutError) as error:
            self._complain(f"cannot be read: {str(error) or 'no answer in time'}")
            return False
        now = clock.now()
        self._seen = self._seen.next(record, now) if self._seen is not None else LeaseObservation(record, now)
        decide = after_coordinated_read if config.coordinated else after_read
        decision = decide(self._seen, config.identity, duration, started, clock.wall())
        match decision:
            case LeaseWrite(wanted, renewal) if renewal or not self._leads:
                self.slow_renewals += renewal
                return await self._write(wanted)
            case LeaseWrite():
                # The lease is free, but another process may have held it since our last renewal: this would be another term.
                why = "it was released or taken over"
            case LeaseHeld(holder):
                why = f'"{holder}" holds it'
            case LeaseRefused(why):
                pass
        if self._leads:
            raise LeaseLost(f"lease {config} is lost: {why}")
        self._complain("", why)
        return False

    async def _write(self, record: LeaseRecord, *, create: bool = False) -> bool:
        sent = self._clock.now()
        try:
            await self._request(self._lock.create(record) if create else self._lock.update(record))
        except (Conflict, AlreadyExists) as error:  # Another candidate was faster, which decides the election.
            _LOG.debug("lease %s: %s", self.config, error)
            return False
        except (KubeloopError, TimeoutError) as error:
            self._complain(f"cannot be written: {str(error) or 'no answer in time'}")
            return False
        self._seen = LeaseObservation(record, self._clock.now())
        # Counted from the time of sending, since the server may count from then on.
        self._renewed = sent
        self._complaint = ""
        return True

    def _request(self, work: Awaitable[T]) -> Awaitable[T]:
        return within(self._clock, self.config.request_timeout, work)

    async def _release(self) -> bool:
        while True:
            try:
                record = await self._request(self._lock.read())
                if record.holder != self.config.identity:
                    return True
                given_back = released(record, self._clock.wall())
                await self._request(self._lock.update(given_back))
            except NotFound:
                return True
            except Conflict:
                await self._clock.sleep(PAUSE)
                continue
            self._seen = LeaseObservation(given_back, self._clock.now())
            _LOG.info("released lease %s", self.config)
            return True

    def _end_term(self) -> None:
        if self._leads:
            self._leads = False
            self._announce("stopped leading")

    def _announce(self, message: str) -> None:
        if self._announcements is not None and self._lock.lease is not None:
            self._announcements.normal(self._lock.lease, "LeaderElection", f"{self.config.identity} {message}")

    def _report(self) -> None:
        if self.leader == self._reported:
            return
        self._reported = self.leader
        _LOG.log(
            logging.DEBUG if self._reported == self.config.identity else logging.INFO, "lease %s: leader is %r", self.config, self._reported
        )
        if self._on_new_leader is not None:
            try:
                self._on_new_leader(self._reported)
            except Exception:  # noqa: BLE001 - logged
                _LOG.exception("lease %s: on_new_leader raised", self.config)

    def _complain(self, problem: str, usual: str = "") -> None:
        """Log a problem once, not at each attempt."""
        if problem and problem != self._complaint:
            _LOG.warning("lease %s %s; retrying", self.config, problem)
        elif usual:
            _LOG.debug("lease %s: %s", self.config, usual)
        self._complaint = problem

    def _loss(self) -> str:
        age = self._clock.now() - self._renewed
        return (
            f"lease {self.config} is lost: not renewed for {age:.1f} s (renew_deadline is {self.config.renew_deadline:g} s)"
            f"{f'; it {self._complaint}' if self._complaint else ''}"
        )


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end. The caller checks its exception."""
    task.cancel()
    await asyncio.wait((task,))
