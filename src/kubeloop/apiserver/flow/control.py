"""Lets requests in: at once while there is room, else by turns that are fair between users, or not at all (429).

One event loop does all the work. So besides seats, of which a request holds one until its answer is made, there is room in a turn of the
loop: what a burst asks for is spread over many turns, between which the loop reads what others ask.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from kubeloop.apiserver.flow.queues import ESTIMATE, FairQueues, Queue, Waiter
from kubeloop.apiserver.flow.schemas import FlowSchema
from kubeloop.endpoints.access import MASTERS, User
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.timing import Clock
from kubeloop.types import JSONObject


class Level:
    """A PriorityLevelConfiguration at work. ``nominal`` is its share of seats; ``exempt`` has no limit, ``queues`` None means refusing."""

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
        #: Its part of the loop's time. Nobody has more of it than who is exempt.
        self.weight = 1
        self.executing = 0
        #: Seconds that its requests have taken, by ``weight``.
        self.virtual = 0.0
        self.dispatched: Counter[str] = Counter()
        #: By schema and reason.
        self.rejected: Counter[tuple[str, str]] = Counter()

    def configure(self, obj: JSONObject) -> None:
        """Take over another state of the object; who waits goes on waiting."""
        spec = obj.get("spec") or {}
        self.uid = obj["metadata"].get("uid") or ""
        self.exempt = spec.get("type") == "Exempt"
        how = spec.get("exempt" if self.exempt else "limited") or {}
        shares = how.get("nominalConcurrencyShares")
        self.shares = shares if shares is not None else 0 if self.exempt else 30
        self.lendable_percent = how.get("lendablePercent") or 0
        self.borrowing_percent = how.get("borrowingLimitPercent")
        response = how.get("limitResponse") or {}
        self.reject = not self.exempt and response.get("type") != "Queue"
        queuing = response.get("queuing") or {}
        self.queue_length = queuing.get("queueLengthLimit") or 50
        shape = (0, 0) if self.exempt or self.reject else (queuing.get("queues") or 64, queuing.get("handSize") or 8)
        if shape != self._shape and not self.queues.length:
            self.queues, self._shape = FairQueues(*shape), shape

    @property
    def lendable(self) -> int:
        return round(self.nominal * self.lendable_percent / 100)

    @property
    def most(self) -> float:
        """Seats at most, borrowed ones among them."""
        if self.exempt:
            return math.inf
        return math.inf if self.borrowing_percent is None else self.nominal + round(self.nominal * self.borrowing_percent / 100)

    def has_seat(self, levels: Iterable[Level]) -> bool:
        """One of its own, or one that another level lends and does not use."""
        if self.exempt or self.executing < max(1, self.nominal):  # one at a time, however small its share
            return True
        if self.executing >= self.most:
            return False
        lent = sum(min(one.lendable, max(0, one.nominal - one.executing)) for one in levels if not one.exempt and one is not self)
        borrowed = sum(max(0, one.executing - one.nominal) for one in levels if not one.exempt)
        return borrowed < lent


def share_out(levels: Iterable[Level], seats: int) -> None:
    """Give each level its part of ``seats``, rounded up as upstream does."""
    levels = list(levels)
    total = sum(level.shares for level in levels) or 1
    for level in levels:
        level.nominal = math.ceil(seats * level.shares / total)
        level.weight = max(1, seats if level.exempt else level.nominal)


#: Seconds that a turn of the loop is to take at most while requests wait; by this its room grows and shrinks.
_TURN = 0.0015
_MOST_IN_TURN = 16
#: Requests a turn beyond its room, of flows that have had less than all that wait: turns later they would be first anyway.
_MOST_OVERTAKING = 2
#: Flows that are remembered, and the longest paths of requests by which they are.
_REMEMBERED = 4096
_LONGEST = 512
_CATCH_ALL = "catch-all"


class RejectedByFlowControl(Exception):
    """There is no room for the request: 429. ``retry_after`` in seconds."""

    retry_after = 1


@dataclass(slots=True, eq=False)
class Flow:
    """Requests that wait for each other; ``waiting`` of them do."""

    schema: FlowSchema
    level: Level
    name: str
    headers: tuple[tuple[str, str], ...]
    waiting: int = 0


@dataclass(slots=True, eq=False)
class Seat:
    """Held while a request is carried out; give it back once, by ``FlowControl.release``."""

    flow: Flow
    since: float
    queue: Queue | None = None


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """``reading`` and ``mutating`` are kube-apiserver's --max-requests-inflight and --max-mutating-requests-inflight; their sum is shared
    out between priority levels. ``wait``: seconds that a request may wait. ``fair`` False: nobody waits, and beyond the limit for its
    kind whoever is no administrator is refused.
    """

    reading: int = 400
    mutating: int = 200
    wait: float = 15.0
    fair: bool = True


@dataclass(slots=True)
class Waits:
    """How long requests waited, by level and schema."""

    count: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))


class FlowControl:
    """Guarantees
        A request waits only while there is none of another flow that has had less of the loop's time in its priority level. Who is refused
        has at least ``queueLengthLimit`` requests of its own waiting, and no seat of its level is free.

    Not guaranteed
        Upstream's width of lists (several seats): what a request takes is measured instead, and charged to its flow.
    """

    def __init__(self, limits: FlowLimits, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        self.levels: dict[str, Level] = {}
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
        return self._waiting

    def put_level(self, _: str, name: str, obj: JSONObject | None) -> None:
        """A PriorityLevelConfiguration as it is now; None: it is gone. Who waits in it is still served."""
        if obj is None:
            self._level_objects.pop(name, None)
        else:
            self._level_objects[name] = obj
            level = self.levels.setdefault(name, Level(name))
            level.configure(obj)
        for gone in [one for one in self.levels if one not in self._level_objects]:
            if not self.levels[gone].executing and not self.levels[gone].queues.length:
                del self.levels[gone]
        share_out((self.levels[one] for one in self._level_objects), self.limits.reading + self.limits.mutating)
        self._flows.clear()
        self._plan()

    def put_schema(self, _: str, name: str, obj: JSONObject | None) -> None:
        """The same for a FlowSchema."""
        if obj is None:
            self._schemas.pop(name, None)
        else:
            self._schemas[name] = FlowSchema.of(obj)
        self._ordered = sorted(self._schemas.values(), key=lambda schema: (schema.precedence, schema.name))
        self._flows.clear()

    def flow_of(self, user: User, info: RequestInfo) -> Flow | None:
        """None: there are no schemas, as in the first moments of a server."""
        path = "" if info.is_resource else info.path
        key = (user.name, user.groups, info.verb, info.group, info.resource, info.subresource, info.namespace, path)
        found = self._flows.get(key)
        if found is None:
            found = self._classify(user, info)
            if found is not None:
                if len(self._flows) >= _REMEMBERED:
                    self._flows.clear()
                if len(info.path) <= _LONGEST:
                    self._flows[key] = found
        return found

    async def admit(self, flow: Flow) -> Seat:
        """Returns when the request may be carried out.

        Raises:
            RejectedByFlowControl
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
            and level.queues.overtake(queue)
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
        where = level.name, flow.schema.name
        self.waits.count[where] += 1
        self.waits.seconds[where] += self._clock.now() - since
        if not admitted:
            level.rejected[flow.schema.name, "time-out"] += 1
            raise RejectedByFlowControl
        return Seat(flow, time.monotonic(), queue)

    def _check_room(self, flow: Flow, queue: Queue) -> None:
        level = flow.level
        if level.exempt:
            return
        seats_for_all = level.executing + level.queues.length < max(1, level.nominal)
        if seats_for_all or (not level.reject and len(queue.waiting) < level.queue_length):
            return
        if level.reject and not level.queues.length and level.has_seat(self.levels.values()):
            return  # only the turn of the loop is full
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
        """The requests let in before have run, at least until they had to wait for something."""
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
                return  # until somebody gives a seat back
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
        # Called after those who have just been let in.
        self._plan()

    def _next_level(self) -> Level | None:
        """Of those with waiting requests and a seat, the one that has had least for its share."""
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
        # Nobody is limited who is exempt; but each has a turn of his own.
        name = user.name if level.exempt else schema.flow(user, info)
        return Flow(schema, level, name, headers)


# Plain limits of how many requests are carried out at a time, without queues: --enable-priority-and-fairness=false.


_READING = frozenset({"get", "list", "watch"})


def is_mutating(verb: str) -> bool:
    return verb not in _READING


class InFlight:
    """Counts requests that read and requests that write. A limit of 0 is none."""

    def __init__(self, limits: FlowLimits) -> None:
        self._limits = limits
        self.reading = 0
        self.mutating = 0

    def enter(self, verb: str) -> None:
        if is_mutating(verb):
            self.mutating += 1
        else:
            self.reading += 1

    def leave(self, verb: str) -> None:
        if is_mutating(verb):
            self.mutating -= 1
        else:
            self.reading -= 1

    def check(self, verb: str, user: User) -> None:
        """Before ``enter``, where these limits are all there is.

        Raises:
            RejectedByFlowControl
        """
        now, most = (self.mutating, self._limits.mutating) if is_mutating(verb) else (self.reading, self._limits.reading)
        if most and now >= most and MASTERS not in user.groups:
            raise RejectedByFlowControl
