"""The Lease of an election: which one, the candidate and its three times; its record, and what a candidate does with what it read."""

from __future__ import annotations

import copy
import math
import re
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from kubeloop.api.coordination.v1 import Lease, LeaseSpec
from kubeloop.api.coordination.v1beta1 import LeaseCandidate as CandidateObject
from kubeloop.api.coordination.v1beta1 import LeaseCandidateSpec
from kubeloop.client import Client
from kubeloop.meta import AlreadyExists, ConfigError, Conflict, KubeloopError, NotFound, ObjectMeta, UnknownKind, Unstructured
from kubeloop.timing import Clock
from kubeloop.transport import logger_with_context

#: Waits between tries are stretched by up to this part of themselves while somebody else leads (client-go's JitterFactor).
JITTER = 1.2

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def unique_identity() -> str:
    """A name that no other candidate has, also not a later run of this program: the host's (a pod's) and a random part."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """One Lease and one candidate for it. Times are in seconds; the defaults are client-go's.

    ``identity``: must differ between candidates, or all of those who share it lead at the same time.
    ``lease_duration``: how long others wait for a sign of life before they take over; whole seconds.
    ``renew_deadline``: after this time without a renewal the leader gives up, by its own clock. The difference to ``lease_duration`` is
    what the clocks may differ in speed, and the time that running work has to end before another leader begins.
    ``retry_period``: between renewals, and between tries of those who do not lead (these stretched by up to 1.2 times itself).
    ``release_on_stop``: give the Lease back on a graceful stop, so that the next one need not wait.
    ``labels``: put on the Lease. ``coordinated``: the server chooses among LeaseCandidates; see ``LeaseCandidate``.

    Raises:
        ConfigError: these times cannot keep two from leading, or a name cannot be one (behaviour I120).
    """

    name: str
    namespace: str
    identity: str = field(default_factory=unique_identity)
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    release_on_stop: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    coordinated: bool = False

    def __post_init__(self) -> None:
        where = f'leader election "{self.namespace}/{self.name}"'
        if not _SUBDOMAIN.fullmatch(self.name) or len(self.name) > 253:
            raise ConfigError(f"{where}: name must be the name of a Lease (lower case letters, digits, '-' and '.'), not {self.name!r}")
        if not _LABEL.fullmatch(self.namespace) or len(self.namespace) > 63:
            raise ConfigError(f"{where}: namespace must be the name of a namespace, not {self.namespace!r}")
        if not self.identity:
            raise ConfigError(f"{where}: identity must not be empty; leave it out for one of the host's name and a random part")
        for name in ("lease_duration", "renew_deadline", "retry_period"):
            if not math.isfinite(getattr(self, name)):
                raise ConfigError(f"{where}: {name} must be a number of seconds, not {getattr(self, name)}")
        if self.lease_duration < 1 or self.lease_duration != int(self.lease_duration):
            raise ConfigError(f"{where}: lease_duration must be whole seconds, at least 1, not {self.lease_duration}")
        lease, renew, retry = self.lease_duration, self.renew_deadline, self.retry_period
        if renew <= 0 or retry <= 0:
            raise ConfigError(f"{where}: renew_deadline and retry_period must be above 0, not {renew} and {retry}")
        if lease <= renew:
            raise ConfigError(
                f"{where}: lease_duration ({lease:g} s) must be longer than renew_deadline ({renew:g} s), "
                "or a leader would still lead when another takes over"
            )
        if renew <= JITTER * retry:
            raise ConfigError(
                f"{where}: renew_deadline ({renew:g} s) must be longer than {JITTER} times retry_period ({retry:g} s), "
                "or one lost request would cost the leadership"
            )

    @property
    def request_timeout(self) -> float:
        """Seconds for one request: half of the renew deadline, so that a hanging request leaves time for another (controller-runtime's)."""
        return self.renew_deadline / 2

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The leader, and the beginning of its term. An empty ``holder``: no leader, take the lease at once.

    ``acquired`` and ``renewed`` are the holder's time of day: for people, and to see that something changed; never compared with a clock
    here. ``duration`` in seconds. ``preferred``, ``strategy``: of coordinated election.
    """

    holder: str = ""
    duration: int = 0
    acquired: datetime | None = None
    renewed: datetime | None = None
    transitions: int = 0
    preferred: str = ""
    strategy: str = ""

    @classmethod
    def of(cls, spec: LeaseSpec) -> LeaseRecord:
        """What a server's spec says; missing fields are empty (behaviour I129)."""
        return cls(
            spec.holder_identity or "",
            spec.lease_duration_seconds or 0,
            spec.acquire_time,
            spec.renew_time,
            spec.lease_transitions or 0,
            spec.preferred_holder or "",
            spec.strategy or "",
        )

    def spec(self) -> LeaseSpec:
        """As a spec; the two fields of coordinated election only if they are set, as older servers do not know them."""
        return LeaseSpec(
            holder_identity=self.holder,
            lease_duration_seconds=self.duration,
            acquire_time=self.acquired,
            renew_time=self.renewed,
            lease_transitions=self.transitions,
            preferred_holder=self.preferred or None,
            strategy=self.strategy or None,
        )


# The rules of an election, without I/O and without a clock: what was seen when, and what may be written now.
#
# Source: client-go tools/leaderelection (tryAcquireOrRenew, tryCoordinatedRenew); behaviours I121 to I123, I130.


@dataclass(frozen=True, slots=True)
class LeaseObservation:
    """The record last seen, and the local monotonic time in seconds at which it was first seen so."""

    record: LeaseRecord
    at: float

    def next(self, record: LeaseRecord, now: float) -> LeaseObservation:
        """After a read. A record that is as before does not become younger by being read again (behaviour I123)."""
        return self if record == self.record else LeaseObservation(record, now)

    def alive(self, now: float) -> bool:
        """Whether its holder may still lead. Counted from when the record was *seen* to change, by the local clock alone: a time of day
        that another machine wrote is never compared with ours."""
        return self.at + self.record.duration > now


@dataclass(frozen=True, slots=True)
class LeaseWrite:
    """Write this record. ``renewal``: we hold the lease already."""

    record: LeaseRecord
    renewal: bool


@dataclass(frozen=True, slots=True)
class LeaseHeld:
    """``holder`` leads and has not been seen to expire."""

    holder: str


@dataclass(frozen=True, slots=True)
class LeaseRefused:
    """In a coordinated election: not ours to write, for the reason in ``why``."""

    why: str


def first(identity: str, duration: int, wall: datetime) -> LeaseRecord:
    """For a Lease that does not exist."""
    return LeaseRecord(identity, duration, wall, wall)


def renewed(record: LeaseRecord, duration: int, wall: datetime) -> LeaseRecord:
    """Our own record, renewed: transitions and the time of acquisition stay (behaviour I122)."""
    return replace(record, duration=duration, renewed=wall)


def released(record: LeaseRecord, wall: datetime) -> LeaseRecord:
    """Given back: without a holder, for one second; transitions stay (behaviour I125)."""
    return LeaseRecord("", 1, wall, wall, record.transitions)


def after_read(seen: LeaseObservation, identity: str, duration: int, now: float, wall: datetime) -> LeaseWrite | LeaseHeld:
    """What to do about the record that was read. ``now`` is from before the read: late is safe here, early is not."""
    record = seen.record
    if record.holder == identity:
        return LeaseWrite(renewed(record, duration, wall), renewal=True)
    if record.holder and seen.alive(now):
        return LeaseHeld(record.holder)
    return LeaseWrite(LeaseRecord(identity, duration, wall, wall, record.transitions + 1), renewal=False)


def after_coordinated_read(
    seen: LeaseObservation, identity: str, duration: int, now: float, wall: datetime
) -> LeaseWrite | LeaseHeld | LeaseRefused:
    """As ``after_read`` where the server chooses the holder: only what it gave us may be renewed, and only until it prefers another
    (behaviour I130)."""
    record = seen.record
    if record.holder != identity:
        return LeaseHeld(record.holder) if record.holder else LeaseRefused("the server has not chosen a holder yet")
    if not seen.alive(now):
        return LeaseRefused("the lease has expired; the server chooses again")
    if record.preferred:
        return LeaseRefused(f'the server asks to hand over to "{record.preferred}"')
    return LeaseWrite(renewed(record, duration, wall), renewal=True)


class LeaseLock:
    """One Lease. Each write is bound to the version last seen here: it is refused if anybody wrote in between.

    Annotations, labels of others and unknown fields of the Lease survive.
    """

    def __init__(self, client: Client, config: LeaseConfig) -> None:
        self._client = client
        self._config = config
        self.lease: Lease | None = None

    async def read(self) -> LeaseRecord:
        """What the server has now.

        Raises:
            NotFound: there is no such Lease.
        """
        self.lease = await self._client.get(Lease, self._config.name, namespace=self._config.namespace)
        return LeaseRecord.of(self.lease.spec)

    async def create(self, record: LeaseRecord) -> None:
        """Make the Lease.

        Raises:
            AlreadyExists: somebody was faster. NotFound: the namespace does not exist.
        """
        metadata = ObjectMeta(name=self._config.name, namespace=self._config.namespace, labels=dict(self._config.labels))
        self.lease = await self._client.create(Lease(metadata=metadata, spec=record.spec()))

    async def update(self, record: LeaseRecord) -> None:
        """Write over the version last seen.

        Raises:
            Conflict: somebody wrote in between. NotFound: the Lease was deleted.
        """
        if self.lease is None:
            raise KubeloopError(f"lease {self._config}: nothing was read or created yet")
        # A fresh copy of the document each time: a failed write must not leave its values in the next one.
        changed = copy.deepcopy(self.lease)
        changed.spec = record.spec()
        changed.metadata.labels.update(self._config.labels)
        self.lease = await self._client.update(changed)


# A candidate of coordinated election (KEP-4355): tells the server that it stands, and answers when the server asks whether it still does.
#
# The server chooses the holder among candidates by their versions; the elector (``coordinated=True``) then renews. Source: client-go
# tools/leaderelection/leasecandidate.go; behaviour I130.


log = logger_with_context("kubeloop.controller.election")

#: Seconds between unrequested renewals (client-go's requeueInterval), and between checks for a ping.
RENEWAL = 300.0
LOOK = 2.0

# The class knows its own path; only discovery knows whether anything is there.
_ASKED = Unstructured.of("coordination.k8s.io/v1beta1", "LeaseCandidate")


class LeaseCandidate:
    """Stands for the Lease of ``config``, with these versions of the program; of several, ``OldestEmulationVersion`` takes the oldest.

    Guarantees
        A question of the server (``spec.pingTime`` later than ``spec.renewTime``) is answered by renewing at the next look, within
        ``look`` seconds. Without questions it renews every five minutes.

    Run it beside an elector with ``LeaseConfig(..., coordinated=True)``, until cancelled. The object stays, as client-go's does: the server
    deletes candidates that no longer renew.
    """

    def __init__(
        self,
        client: Client,
        config: LeaseConfig,
        *,
        binary_version: str,
        emulation_version: str = "",
        strategy: str = "OldestEmulationVersion",
        look: float = LOOK,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._config = config
        self._spec = LeaseCandidateSpec(
            lease_name=config.name, binary_version=binary_version, emulation_version=emulation_version or binary_version, strategy=strategy
        )
        self._look = look
        self._clock = clock or client.clock

    async def run(self) -> None:
        """Until cancelled.

        Raises:
            UnknownKind: the server has no LeaseCandidates; coordinated election is not possible there.
        """
        renewed: float | None = None
        looked = False
        while True:
            try:
                if not looked:
                    await self._client.mapping(_ASKED)
                    looked = True
                if await self._ensure(due=renewed is None or self._clock.now() - renewed >= RENEWAL):
                    renewed = self._clock.now()
            except UnknownKind as error:
                raise UnknownKind(
                    f"coordinated election is not served here: {error}; leave out coordinated=True, or turn on the feature gate "
                    "CoordinatedLeaderElection and --runtime-config=coordination.k8s.io/v1beta1=true of the API server"
                ) from error
            except (AlreadyExists, Conflict) as error:
                log.debug("candidate %s: %s", self._config.identity, error)
            except KubeloopError as error:
                log.warning("candidate %s for %s could not be renewed: %s", self._config.identity, self._config, error)
            await self._clock.sleep(self._look)

    async def _ensure(self, *, due: bool) -> bool:
        """Whether it was written."""
        now, namespace = self._clock.wall(), self._config.namespace
        try:
            found = await self._client.get(CandidateObject, self._config.identity, namespace=namespace)
        except NotFound:
            spec = self._spec
            spec.renew_time = now
            await self._client.create(CandidateObject(metadata=ObjectMeta(name=self._config.identity, namespace=namespace), spec=spec))
            return True
        asked = found.spec.ping_time
        if not due and (asked is None or (found.spec.renew_time is not None and asked <= found.spec.renew_time)):
            return False
        found.spec.renew_time = now
        await self._client.update(found)
        return True
