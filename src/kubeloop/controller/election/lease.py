"""The Lease of an election: its configuration, its record, the rules of a candidate, and reads and writes of the Lease."""

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

#: Random extra share of the wait between attempts while another candidate leads (client-go's JitterFactor).
JITTER = 1.2

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def unique_identity() -> str:
    """Return a name that differs from those of all other candidates and runs: the host name (of a pod: its name) and a random part."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """The Lease of an election, and one candidate for it. Times are in seconds; the defaults are client-go's.

    Args:
        name: Name of the Lease.
        namespace: Namespace of the Lease.
        identity: Name of this candidate. It must differ between candidates, or they would lead at the same time. Default:
            ``unique_identity()``.
        lease_duration: Seconds without a renewal after which another candidate takes over; whole seconds.
        renew_deadline: Seconds without a successful renewal after which the leader stops, by its own clock. The difference to
            ``lease_duration`` covers clocks of different speed, and is the time that work has to end before another leader begins.
        retry_period: Seconds between renewals. Other candidates try at intervals of 1 to 2.2 times this period.
        release_on_stop: Release the Lease on a graceful stop, so that the next leader need not wait.
        labels: Labels of the Lease.
        coordinated: The server chooses among LeaseCandidates; see ``LeaseCandidate``.

    Raises:
        ConfigError: the times do not exclude two simultaneous leaders, or a name is invalid.

    Example:
        >>> config = LeaseConfig("my-operator", "ops", lease_duration=30, renew_deadline=20)
        >>> str(config), config.request_timeout
        ('ops/my-operator', 10.0)
    """

    # Behaviour I120: the conditions of the times.

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
        """Seconds for one request: half of the renew deadline, so that a hanging request leaves time for another.

        Source: controller-runtime.
        """
        return self.renew_deadline / 2

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The content of a Lease: its holder and term. An empty ``holder`` means that the lease is free.

    ``acquired`` and ``renewed`` are times of the holder's machine: for people, and to detect changes; they are never compared with a local
    clock. ``duration`` is in seconds. ``preferred`` and ``strategy`` belong to coordinated election.

    Example:
        >>> record = LeaseRecord(holder="replica-1", duration=15, transitions=3)
        >>> LeaseRecord.from_spec(record.spec()).holder
        'replica-1'
    """

    holder: str = ""
    duration: int = 0
    acquired: datetime | None = None
    renewed: datetime | None = None
    transitions: int = 0
    preferred: str = ""
    strategy: str = ""

    @classmethod
    def from_spec(cls, spec: LeaseSpec) -> LeaseRecord:
        """Return the record in a Lease's spec; missing fields are empty."""
        # Behaviour I129.
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
        """Return the record as a spec. The fields of coordinated election are included only if set, since older servers lack them."""
        return LeaseSpec(
            holder_identity=self.holder,
            lease_duration_seconds=self.duration,
            acquire_time=self.acquired,
            renew_time=self.renewed,
            lease_transitions=self.transitions,
            preferred_holder=self.preferred or None,
            strategy=self.strategy or None,
        )


# The rules of an election, without I/O and clock: they decide from the observed records what may be written now.
#
# Source: client-go tools/leaderelection (tryAcquireOrRenew, tryCoordinatedRenew); behaviours I121 to I123, I130.


@dataclass(frozen=True, slots=True)
class LeaseObservation:
    """The record last read, and the local monotonic time in seconds at which it was first read in this state."""

    record: LeaseRecord
    at: float

    def next(self, record: LeaseRecord, now: float) -> LeaseObservation:
        """Return the observation after another read. An unchanged record keeps its time."""
        # Behaviour I123.
        return self if record == self.record else LeaseObservation(record, now)

    def alive(self, now: float) -> bool:
        """Return whether the holder may still lead.

        The duration counts from the local time at which the record was seen to change. Times of other machines are not used.
        """
        return self.at + self.record.duration > now


@dataclass(frozen=True, slots=True)
class LeaseWrite:
    """The decision to write a record. ``renewal`` is True if this candidate holds the lease already."""

    record: LeaseRecord
    renewal: bool


@dataclass(frozen=True, slots=True)
class LeaseHeld:
    """The decision not to write, because another candidate holds the lease."""

    holder: str


@dataclass(frozen=True, slots=True)
class LeaseRefused:
    """The decision not to write in a coordinated election, for the reason in ``why``."""

    why: str


def first(identity: str, duration: int, wall: datetime) -> LeaseRecord:
    """Return the record for a Lease that does not exist yet."""
    return LeaseRecord(identity, duration, wall, wall)


def renewed(record: LeaseRecord, duration: int, wall: datetime) -> LeaseRecord:
    """Return the record of a renewal: ``record`` with a new duration and time; transitions and the time of acquisition stay."""
    # Behaviour I122.
    return replace(record, duration=duration, renewed=wall)


def released(record: LeaseRecord, wall: datetime) -> LeaseRecord:
    """Return the record of a release: without a holder, with a duration of one second; transitions stay."""
    # Behaviour I125.
    return LeaseRecord("", 1, wall, wall, record.transitions)


def after_read(seen: LeaseObservation, identity: str, duration: int, now: float, wall: datetime) -> LeaseWrite | LeaseHeld:
    """Return the decision of a candidate that has read the Lease.

    Args:
        seen: The record, and when it last changed.
        identity: The candidate.
        duration: Lease duration in seconds.
        now: Monotonic time before the read: noticing an expiry too late is safe, noticing it too early is not.
        wall: Time of day, for the record.

    Returns:
        The record to write, or that another candidate holds the lease.
    """
    record = seen.record
    if record.holder == identity:
        return LeaseWrite(renewed(record, duration, wall), renewal=True)
    if record.holder and seen.alive(now):
        return LeaseHeld(record.holder)
    return LeaseWrite(LeaseRecord(identity, duration, wall, wall, record.transitions + 1), renewal=False)


def after_coordinated_read(
    seen: LeaseObservation, identity: str, duration: int, now: float, wall: datetime
) -> LeaseWrite | LeaseHeld | LeaseRefused:
    """Return the decision of a candidate that has read the Lease in an election in which the server chooses the holder.

    A holder renews only a lease that the server assigned to it, and only until the server prefers another candidate.

    Args:
        seen: See ``after_read``.
        identity: See ``after_read``.
        duration: See ``after_read``.
        now: See ``after_read``.
        wall: See ``after_read``.

    Returns:
        The record to write; ``LeaseHeld`` if another candidate holds the lease; ``LeaseRefused`` if the server has not chosen a holder, if
        the lease has expired, or if the server prefers another candidate.
    """
    # Behaviour I130.
    record = seen.record
    if record.holder != identity:
        return LeaseHeld(record.holder) if record.holder else LeaseRefused("the server has not chosen a holder yet")
    if not seen.alive(now):
        return LeaseRefused("the lease has expired; the server chooses again")
    if record.preferred:
        return LeaseRefused(f'the server asks to hand over to "{record.preferred}"')
    return LeaseWrite(renewed(record, duration, wall), renewal=True)


class LeaseLock:
    """Reads and writes one Lease. Each write requires the version that this object last read or wrote.

    Annotations, foreign labels and unknown fields of the Lease are preserved.
    """

    def __init__(self, client: Client, config: LeaseConfig) -> None:
        self._client = client
        self._config = config
        self.lease: Lease | None = None

    async def read(self) -> LeaseRecord:
        """Return the server's record.

        Raises:
            NotFound: there is no such Lease.
        """
        self.lease = await self._client.get(Lease, self._config.name, namespace=self._config.namespace)
        return LeaseRecord.from_spec(self.lease.spec)

    async def create(self, record: LeaseRecord) -> None:
        """Create the Lease.

        Raises:
            AlreadyExists: another candidate was faster.
            NotFound: the namespace does not exist.
        """
        metadata = ObjectMeta(name=self._config.name, namespace=self._config.namespace, labels=dict(self._config.labels))
        self.lease = await self._client.create(Lease(metadata=metadata, spec=record.spec()))

    async def update(self, record: LeaseRecord) -> None:
        """Replace the record of the Lease if the Lease still has the version that this object last read or wrote.

        Raises:
            Conflict: another program wrote in between.
            NotFound: the Lease was deleted.
            KubeloopError: the Lease was not read or created before.
        """
        if self.lease is None:
            raise KubeloopError(f"lease {self._config}: nothing was read or created yet")
        # A new copy of the document each time: a failed write must not leave its values in the next one.
        changed = copy.deepcopy(self.lease)
        changed.spec = record.spec()
        changed.metadata.labels.update(self._config.labels)
        self.lease = await self._client.update(changed)


# A candidate of coordinated election (KEP-4355): announces itself to the server, and answers its pings.
#
# The server chooses the holder among candidates by their versions; the elector (``coordinated=True``) then renews. Source: client-go
# tools/leaderelection/leasecandidate.go; behaviour I130.


_LOG = logger_with_context("kubeloop.controller.election")

#: Seconds between renewals without a ping (client-go's requeueInterval), and between checks for a ping.
RENEWAL = 300.0
LOOK = 2.0

# The class has its path; only discovery shows whether the server serves it.
_ASKED = Unstructured.for_kind("coordination.k8s.io/v1beta1", "LeaseCandidate")


class LeaseCandidate:
    """Announces this process as a candidate of a coordinated election, in which the server chooses the leader by version.

    Guarantees
        A ping of the server (``spec.pingTime`` later than ``spec.renewTime``) is answered by a renewal within ``look`` seconds. Without
        pings the candidate is renewed every five minutes.

    Call ``run`` beside an elector with ``LeaseConfig(..., coordinated=True)``, until it is cancelled. The LeaseCandidate object is not
    deleted at the end, as in client-go: the server deletes candidates that are not renewed.

    Args:
        client: The client of the cluster.
        config: The Lease of the election.
        binary_version: Version of the program.
        emulation_version: Version that the program emulates. Empty: ``binary_version``.
        strategy: The rule by which the server chooses; ``OldestEmulationVersion`` prefers the oldest version.
        look: Seconds between two checks for pings.
        clock: Clock of the delays. None: the client's.

    Example:
        >>> config = LeaseConfig("my-operator", client.namespace, coordinated=True)
        >>> candidate = asyncio.create_task(LeaseCandidate(client, config, binary_version="1.4.0").run())
        >>> candidate.cancel()
        True
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
        """Announce the candidate and answer pings until cancelled.

        Raises:
            UnknownKind: the server does not serve LeaseCandidates, so coordinated election is not possible.
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
                _LOG.debug("candidate %s: %s", self._config.identity, error)
            except KubeloopError as error:
                _LOG.warning("candidate %s for %s could not be renewed: %s", self._config.identity, self._config, error)
            await self._clock.sleep(self._look)

    async def _ensure(self, *, due: bool) -> bool:
        """Create the candidate, or renew it if it is due or pinged. Return whether it was written."""
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
