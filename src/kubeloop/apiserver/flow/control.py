"""Flow control: executes requests at once while there is capacity. Otherwise they wait in a fair order or are rejected (429).

One event loop does all the work. Besides the seats (requests in execution) there is a limit of requests that start in one turn of the loop.
It spreads a burst over many turns, between which the loop serves other connections.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from kubeloop.apiserver.flow.queues import ESTIMATE, FairQueues, FlowQueue, Waiter
from kubeloop.apiserver.flow.schemas import FlowSchema
from kubeloop.endpoints.access import MASTERS, User
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.timing import Clock
from kubeloop.types import JSONObject


class PriorityLevel:
    """A PriorityLevelConfiguration with its requests.

    ``nominal`` is its number of seats. ``exempt`` means that its requests are not limited. ``reject`` means that requests beyond the limit
    are rejected; otherwise they wait in ``queues``.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.uid = ""
        self.exempt = False
        self.reject = False
        self.shares = 0
        self.lendable_percent = 0
        self.borrowing_percent: int | None = None
        self.queue_length = 0
        self.queues = FairQueues()
        self._shape = (0, 0)
        self.nominal = 0
        #: Relative share of the loop's time. Exempt levels have the largest.
        self.weight = 1
        self.executing = 0
        #: Seconds that its requests have used, divided by ``weight``.
        self.virtual = 0.0
        self.dispatched: Counter[str] = Counter()
        #: (schema, reason) -> number of rejected requests.
        self.rejected: Counter[tuple[str, str]] = Counter()

    def configure(self, obj: JSONObject) -> None:
        """Apply a new state of the configuration. Waiting requests stay in their queues."""
        spec = obj.get("spec") or {}
        self.uid = obj["metadata"].get("uid") or ""
        self.exempt = spec.get("type") == "Exempt"
        options = spec.get("exempt" if self.exempt else "limited") or {}
        shares = options.get("nominalConcurrencyShares")
        self.shares = shares if shares is not None else 0 if self.exempt else 30
        self.lendable_percent = options.get("lendablePercent") or 0
        self.borrowing_percent = options.get("borrowingLimitPercent")
        response = options.get("limitResponse") or {}
        self.reject = not self.exempt and response.get("type") != "Queue"
        queuing = response.get("queuing") or {}
        self.queue_length = queuing.get("queueLengthLimit") or 50
        shape = (0, 0) if self.exempt or self.reject else (queuing.get("queues") or 64, queuing.get("handSize") or 8)
        if shape != self._shape and not self.queues.length:
            self.queues, self._shape = FairQueues(*shape), shape

    @property
    def lendable_seats(self) -> int:
        """Number of seats that other levels may borrow."""
        return round(self.nominal * self.lendable_percent / 100)

    @property
    def max_seats(self) -> float:
        """Maximum number of seats, including borrowed ones."""
        if self.exempt:
            return math.inf
        return math.inf if self.borrowing_percent is None else self.nominal + round(self.nominal * self.borrowing_percent / 100)

    def has_seat(self, levels: Iterable[PriorityLevel]) -> bool:
        """Return whether a request can start on a seat of the level, or on an unused seat that another level lends."""
        if self.exempt or self.executing < max(1, self.nominal):  # at least one seat, however small the share
            return True
        if self.executing >= self.max_seats:
            return False
        lent = sum(min(one.lendable_seats, max(0, one.nominal - one.executing)) for one in levels if not one.exempt and one is not self)
        borrowed = sum(max(0, one.executing - one.nominal) for one in levels if not one.exempt)
        return borrowed < lent


def distribute_seats(levels: Iterable[PriorityLevel], seats: int) -> None:
    """Distribute ``seats`` to levels by their shares, rounded up as upstream."""
    levels = list(levels)
    total = sum(level.shares for level in levels) or 1
    for level in levels:
        level.nominal = math.ceil(seats * level.shares / total)
        level.weight = max(1, seats if level.exempt else level.nominal)


#: Target for the seconds of a turn of the loop while requests wait. The number of requests per turn adapts to it.
_TURN = 0.0015
_MOST_IN_TURN = 16
#: Maximum additional requests per turn from flows that have used less time than all waiting ones.
_MOST_OVERTAKING = 2
#: Maximum cached flows.
_REMEMBERED = 4096
_LONGEST = 512
_CATCH_ALL = "catch-all"


class RejectedByFlowControl(Exception):
    """Flow control rejects the request with 429, because there is no capacity. ``retry_after`` is in seconds."""

    retry_after = 1


@dataclass(slots=True, eq=False)
class Flow:
    """A flow: requests that are queued together, usually those of one user. ``waiting`` is the number of its waiting requests."""

    schema: FlowSchema
    level: PriorityLevel
    name: str
    headers: tuple[tuple[str, str], ...]
    waiting: int = 0


@dataclass(slots=True, eq=False)
class Seat:
    """The permission to execute a request. ``FlowControl.release`` must be called once at its end."""

    flow: Flow
    since: float
    queue: FlowQueue | None = None


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits of flow control.

    Attributes:
        reading: kube-apiserver's --max-requests-inflight. The sum with ``mutating`` is distributed to the priority levels.
        mutating: kube-apiserver's --max-mutating-requests-inflight.
        wait: Maximum seconds for which a request waits in a queue.
        fair: False: no queues; requests beyond the limit of their kind are rejected, except those of administrators.
    """

    reading: int = 400
    mutating: int = 200
    wait: float = 15.0
    fair: bool = True


@dataclass(slots=True)
class Waits:
    """Waiting times of requests by level and schema, for metrics."""

    count: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))


class FlowControl:
    """Admits requests by FlowSchemas and PriorityLevelConfigurations.

    Guarantees
        The waiting request that starts next belongs to the flow of its level that has used the least time of the event loop. A request is
        rejected only if no seat of its level is free and its level has no queues or ``queueLengthLimit`` requests wait in its queue, or
        after it has waited for ``FlowLimits.wait`` seconds.

    Not guaranteed
        Upstream's width of lists (several seats): the time that a request takes is measured instead, and charged to its flow.
    """

    def __init__(self, limits: FlowLimits, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        self.levels: dict[str, PriorityLevel] = {}
        self._level_objects: dict[str, JSONObject] = {}
        self._schemas: dict[str, FlowSchema] = {}
        self._ordered: list[FlowSchema] = []
        self._flows: dict[tuple[object, ...], Flow] = {}
        self._waiting = 0
        self._room = self._wide = 4
        self._overtaking = _MOST_OVERTAKING
        self._planned = False
        self._turn_began = 0.0
        self._virtual = 0.0
        self.waits = Waits()

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return self._waiting

    def put_level(self, _: str, name: str, obj: JSONObject | None) -> None:
        """Store a PriorityLevelConfiguration. If ``obj`` is None, remove it; its waiting requests are still executed."""
        if obj is None:
            self._level_objects.pop(name, None)
        else:
            self._level_objects[name] = obj
            level = self.levels.setdefault(name, PriorityLevel(name))
            level.configure(obj)
        for gone in [one for one in self.levels if one not in self._level_objects]:
            if not self.levels[gone].executing and not self.levels[gone].queues.length:
                del self.levels[gone]
        distribute_seats((self.levels[one] for one in self._level_objects), self.limits.reading + self.limits.mutating)
        self._flows.clear()
        self._plan()

    def put_schema(self, _: str, name: str, obj: JSONObject | None) -> None:
        """Store a FlowSchema. If ``obj`` is None, remove it."""
        if obj is None:
            self._schemas.pop(name, None)
        else:
            self._schemas[name] = FlowSchema.parse(obj)
        self._ordered = sorted(self._schemas.values(), key=lambda schema: (schema.precedence, schema.name))
        self._flows.clear()

    def flow_of(self, user: User, info: RequestInfo) -> Flow | None:
        """Return the flow of a request, or None while the starting server has no schemas."""
        path = "" if info.is_resource else info.path
        key = (user.name, user.groups, info.verb, info.group, info.resource, info.subresource, info.namespace, path)
        result = self._flows.get(key)
        if result is None:
            result = self._classify(user, info)
            if result is not None:
                if len(self._flows) >= _REMEMBERED:
                    self._flows.clear()
                if len(info.path) <= _LONGEST:
                    self._flows[key] = result
        return result

    async def admit(self, flow: Flow) -> Seat:
        """Wait until a request may be executed, and return its seat.

        Raises:
            RejectedByFlowControl: There is no capacity.
        """
        level = flow.level
        if self._room and not self._waiting and level.has_seat(self.levels.values()):
            if not self._planned:
                self._turn_began = time.monotonic()
                self._planned = True
                asyncio.get_running_loop().call_soon(self._next_turn)
            self._room -= 1
            level.executing += 1
            level.dispatched[flow.schema.name] += 1
            return Seat(flow, time.monotonic())
        return await self._queue(flow)

    def release(self, seat: Seat) -> None:
        """Release the seat of a request that has ended."""
        level = seat.flow.level
        level.executing -= 1
        taken = time.monotonic() - seat.since
        if seat.queue is not None:
            level.queues.charge(seat.queue, taken)
            taken -= ESTIMATE
        level.virtual += taken / level.weight
        if self._waiting:
            self._plan()

    async def _queue(self, flow: Flow) -> Seat:
        level = flow.level
        queue = level.queues.shortest(flow.schema.name, flow.name)
        if (
            self._overtaking
            and self._waiting
            and not flow.waiting
            and level.has_seat(self.levels.values())
            and level.queues.try_admit(queue)
        ):
            self._overtaking -= 1
            level.executing += 1
            level.dispatched[flow.schema.name] += 1
            return Seat(flow, time.monotonic(), queue)
        self._check_room(flow, queue)
        since = self._clock.now()
        waiter = Waiter(flow, asyncio.get_running_loop().create_future(), since)
        if not level.queues.length:
            level.virtual = max(level.virtual, self._virtual)
        level.queues.add(waiter, queue)
        self._waiting += 1
        flow.waiting += 1
        waiter.timer = self._clock.call_later(self.limits.wait, lambda: self._time_out(waiter))
        self._plan()
        try:
            admitted = await waiter.turn
        except asyncio.CancelledError:
            if level.queues.remove(waiter):
                self._waiting -= 1
            elif waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.result():
                self.release(Seat(flow, time.monotonic(), queue))
            raise
        finally:
            flow.waiting -= 1
            waiter.timer.cancel()
        labels = level.name, flow.schema.name
        self.waits.count[labels] += 1
        self.waits.seconds[labels] += self._clock.now() - since
        if not admitted:
            level.rejected[flow.schema.name, "time-out"] += 1
            raise RejectedByFlowControl
        return Seat(flow, time.monotonic(), queue)

    def _check_room(self, flow: Flow, queue: FlowQueue) -> None:
        level = flow.level
        if level.exempt:
            return
        seats_for_all = level.executing + level.queues.length < max(1, level.nominal)
        if seats_for_all or (not level.reject and len(queue.waiting) < level.queue_length):
            return
        if level.reject and not level.queues.length and level.has_seat(self.levels.values()):
            return  # the limit of this turn of the loop is reached
        level.rejected[flow.schema.name, "concurrency-limit" if level.reject else "queue-full"] += 1
        raise RejectedByFlowControl

    def _time_out(self, waiter: Waiter) -> None:
        if waiter.flow.level.queues.remove(waiter):
            self._waiting -= 1
            if not waiter.turn.done():
                waiter.turn.set_result(False)

    def _plan(self) -> None:
        if self._waiting and not self._planned:
            self._planned = True
            self._turn_began = time.monotonic()
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Begin a new turn of the event loop. The requests admitted in the last turn have run until they had to wait for I/O."""
        self._planned = False
        took = time.monotonic() - self._turn_began
        if took > _TURN:
            self._wide = max(1, self._wide // 2)
        elif not self._room:
            self._wide = min(_MOST_IN_TURN, self._wide + 1)
        self._room = self._wide
        self._overtaking = _MOST_OVERTAKING
        while self._room and self._waiting:
            level = self._next_level()
            if level is None:
                return  # until a request releases a seat
            self._virtual = level.virtual
            level.virtual += ESTIMATE / level.weight
            waiter = level.queues.next()
            self._waiting -= 1
            if waiter.turn.done():
                continue
            self._room -= 1
            level.executing += 1
            level.dispatched[waiter.flow.schema.name] += 1
            waiter.turn.set_result(True)
        # Scheduled after the requests that were just admitted.
        self._plan()

    def _next_level(self) -> PriorityLevel | None:
        """Return the level with waiting requests and a free seat that has used the least time for its share."""
        ready = [one for one in self.levels.values() if one.queues.length and one.has_seat(self.levels.values())]
        return min(ready, key=lambda level: level.virtual) if ready else None

    def _classify(self, user: User, info: RequestInfo) -> Flow | None:
        schema = next((one for one in self._ordered if one.level in self._level_objects and one.match(user, info)), None)
        if schema is None:
            schema = self._schemas.get(_CATCH_ALL)
        level = self.levels.get(schema.level) if schema is not None else None
        if schema is None or level is None:
            return None
        headers = (("X-Kubernetes-Pf-Flowschema-Uid", schema.uid), ("X-Kubernetes-Pf-Prioritylevel-Uid", level.uid))
        # Exempt requests have no limit, but each runs in a separate turn.
        name = user.name if level.exempt else schema.flow(user, info)
        return Flow(schema, level, name, headers)


# Limits of concurrent requests without queues: --enable-priority-and-fairness=false.


_READING = frozenset({"get", "list", "watch"})


def is_mutating(verb: str) -> bool:
    """Return whether a verb counts against the limit of mutating requests."""
    return verb not in _READING


class InFlight:
    """Counts reading and mutating requests in execution. A limit of 0 means no limit."""

    def __init__(self, limits: FlowLimits) -> None:
        self._limits = limits
        self.reading = 0
        self.mutating = 0

    def enter(self, verb: str) -> None:
        """Count a request."""
        if is_mutating(verb):
            self.mutating += 1
        else:
            self.reading += 1

    def leave(self, verb: str) -> None:
        """Stop counting a request."""
        if is_mutating(verb):
            self.mutating -= 1
        else:
            self.reading -= 1

    def check(self, verb: str, user: User) -> None:
        """Check the limits before ``enter``. This replaces the queues if fair queuing is off.

        Raises:
            RejectedByFlowControl: The limit is reached, and the user is no administrator.
        """
        now, maximum = (self.mutating, self._limits.mutating) if is_mutating(verb) else (self.reading, self._limits.reading)
        if maximum and now >= maximum and MASTERS not in user.groups:
            raise RejectedByFlowControl
