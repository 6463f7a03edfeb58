"""Random histories of both queues against models that are too simple to be wrong (behaviours H100-H112, R212-R215)."""

import asyncio

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kubeloop.timing import FakeClock
from kubeloop.workqueue import ExponentialLimiter, PriorityQueue, QueueTimes, WorkQueue
from kubeloop.workqueue.order import FairOrder

KEYS = st.sampled_from("abcde")
PRIORITIES = st.sampled_from((-100, 0, 1, 7))


class QueueMachine(RuleBasedStateMachine):
    """The model: a list of waiting keys, a set in work, a set to come back, and a time per delayed key."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.times = QueueTimes()
        self.queue: WorkQueue[str] = WorkQueue(ExponentialLimiter(1, 8), self.clock, metrics=self.times)
        self.waiting: list[str] = []
        self.working: set[str] = set()
        self.again: list[str] = []
        self.due: dict[str, tuple[float, int]] = {}
        self.failures: dict[str, int] = {}
        self.stopped = False
        self.sequence = 0

    def teardown(self) -> None:
        self.loop.close()

    def model_add(self, key: str) -> None:
        if self.stopped:
            return
        if key in self.working:
            if key not in self.again:
                self.again.append(key)
        elif key not in self.waiting:
            self.waiting.append(key)

    def model_delay(self, key: str, seconds: float) -> None:
        due = self.clock.now() + seconds
        self.sequence += 1
        if not self.stopped and (key not in self.due or due < self.due[key][0]):
            self.due[key] = (due, self.sequence)

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.model_add(key)

    @rule(key=KEYS, seconds=st.integers(1, 6))
    def add_after(self, key: str, seconds: int) -> None:
        self.queue.add_after(key, seconds)
        self.model_delay(key, seconds)

    @rule(key=KEYS)
    def fail(self, key: str) -> None:
        self.queue.add_rate_limited(key)
        self.model_delay(key, min(2 ** self.failures.get(key, 0), 8))
        self.failures[key] = self.failures.get(key, 0) + 1

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.failures.pop(key, None)

    @rule(seconds=st.integers(1, 10))
    def pass_time(self, seconds: int) -> None:
        self.loop.run_until_complete(self.clock.advance(seconds))
        for key in sorted(self.due, key=lambda key: self.due[key]):
            if self.due[key][0] <= self.clock.now():
                del self.due[key]
                self.model_add(key)

    @precondition(lambda self: self.waiting)
    @rule()
    def take(self) -> None:
        expected = self.waiting.pop(0)
        assert self.loop.run_until_complete(self.queue.get()) == expected
        self.working.add(expected)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.queue.done(key)
        self.working.remove(key)
        if key in self.again:
            self.again.remove(key)
            self.waiting.append(key)

    @precondition(lambda self: len(self.failures) > 3)
    @rule()
    def shut_down(self) -> None:
        self.queue.shut_down()
        self.stopped = True
        self.due.clear()

    @invariant()
    def counts_agree(self) -> None:
        stats = self.queue.stats
        assert (stats.waiting, stats.processing, stats.delayed) == (len(self.waiting), len(self.working), len(self.due))
        assert all(self.queue.retries(key) == self.failures.get(key, 0) for key in "abcde")
        assert self.queue.figures.depths == len(self.waiting) + len(self.again)
        assert self.queue.figures.adds == sum(self.times.queue_duration.counts) + len(self.waiting) + len(self.again)


class PriorityQueueMachine(RuleBasedStateMachine):
    """The model: rows of (key, priority, when it took its place) that are ready, keys in work, and (time, priority) of delayed keys."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.times = QueueTimes()
        self.queue: PriorityQueue[str] = PriorityQueue(ExponentialLimiter(1, 8), self.clock, metrics=self.times)
        self.ready: dict[str, tuple[int, int]] = {}
        self.working: dict[str, int] = {}
        self.later: dict[str, tuple[float, int, int]] = {}
        self.failures: dict[str, int] = {}
        self.stopped = False
        self.sequence = 0

    def teardown(self) -> None:
        self.loop.close()

    def model_add(self, key: str, priority: int) -> None:
        if self.stopped:
            return
        if key in self.later:
            priority = max(priority, self.later.pop(key)[2])
        self.sequence += 1
        if key not in self.ready or priority > self.ready[key][0]:
            self.ready[key] = (priority, self.sequence)

    def model_delay(self, key: str, seconds: float, priority: int) -> None:
        if self.stopped:
            return
        if key in self.ready:
            self.model_add(key, priority)
            return
        self.sequence += 1
        due, sequence, highest = self.clock.now() + seconds, self.sequence, priority
        if key in self.later:
            earlier, place, known = self.later[key]
            highest = max(highest, known)
            if earlier <= due:
                due, sequence = earlier, place
        self.later[key] = (due, sequence, highest)

    def candidates(self) -> list[str]:
        free = [key for key in self.ready if key not in self.working]
        return sorted(free, key=lambda key: (-self.ready[key][0], self.ready[key][1]))

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: int) -> None:
        self.queue.add(key, priority=priority)
        self.model_add(key, priority)

    @rule(key=KEYS, seconds=st.integers(1, 6), priority=PRIORITIES)
    def add_after(self, key: str, seconds: int, priority: int) -> None:
        self.queue.add_after(key, seconds, priority=priority)
        self.model_delay(key, seconds, priority)

    @rule(key=KEYS, priority=PRIORITIES)
    def fail(self, key: str, priority: int) -> None:
        self.queue.add_rate_limited(key, priority=priority)
        self.model_delay(key, min(2 ** self.failures.get(key, 0), 8), priority)
        self.failures[key] = self.failures.get(key, 0) + 1

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.failures.pop(key, None)

    @rule(seconds=st.integers(1, 10))
    def pass_time(self, seconds: int) -> None:
        self.loop.run_until_complete(self.clock.advance(seconds))
        for key in sorted(self.later, key=lambda key: self.later[key]):
            due, _, priority = self.later[key]
            if due <= self.clock.now():
                del self.later[key]
                self.model_add(key, priority)

    @precondition(lambda self: self.candidates() and not self.stopped)
    @rule()
    def take(self) -> None:
        expected = self.candidates()[0]
        assert self.loop.run_until_complete(self.queue.get()) == expected
        self.working[expected] = self.ready.pop(expected)[0]

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        assert self.queue.priority_of(key) == self.working.pop(key)
        self.queue.done(key)

    @precondition(lambda self: len(self.failures) > 3)
    @rule()
    def shut_down(self) -> None:
        self.queue.shut_down()
        self.stopped = True
        self.later.clear()

    @invariant()
    def counts_agree(self) -> None:
        stats = self.queue.stats
        assert (stats.waiting, stats.processing, stats.delayed) == (len(self.ready), len(self.working), len(self.later))
        depths = self.queue.figures.depths
        assert not isinstance(depths, int)
        priorities = [priority for priority, _ in self.ready.values()]
        assert {priority: depth for priority, depth in depths.items() if depth} == {each: priorities.count(each) for each in priorities}
        assert stats.adds == sum(self.times.queue_duration.counts) + len(self.ready)
        assert all(self.queue.retries(key) == self.failures.get(key, 0) for key in "abcde")


class FairMachine(RuleBasedStateMachine):
    """The model of tenants: a list of lists. Whose turn it is stands first."""

    def __init__(self) -> None:
        super().__init__()
        self.order: FairOrder[str] = FairOrder(lambda item: item[0])
        self.lines: list[list[str]] = []

    @rule(tenant=st.sampled_from("abc"), number=st.integers(0, 5))
    def add(self, tenant: str, number: int) -> None:
        item = f"{tenant}{number}"
        if item in list(self.order):
            return
        self.order.append(item)
        for line in self.lines:
            if line[0][0] == tenant:
                line.append(item)
                return
        self.lines.append([item])

    @precondition(lambda self: self.lines)
    @rule()
    def take(self) -> None:
        line = self.lines.pop(0)
        assert self.order.popleft() == line.pop(0)
        if line:
            self.lines.append(line)

    @precondition(lambda self: self.lines)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(sorted(item for line in self.lines for item in line)))
        self.order.pop(item)
        for line in self.lines:
            if item in line:
                line.remove(item)
        self.lines = [line for line in self.lines if line]

    @invariant()
    def the_same_items_wait(self) -> None:
        assert list(self.order) == [item for line in self.lines for item in line]
        assert len(self.order) == sum(map(len, self.lines))


_SETTINGS = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueAgainstModel = QueueMachine.TestCase
TestQueueAgainstModel.settings = _SETTINGS
TestPriorityQueueAgainstModel = PriorityQueueMachine.TestCase
TestPriorityQueueAgainstModel.settings = _SETTINGS
TestFairOrderAgainstModel = FairMachine.TestCase
TestFairOrderAgainstModel.settings = _SETTINGS
