"""Random histories of the work queue against a model that is too simple to be wrong."""

import asyncio

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kubeloop.timing import FakeClock
from kubeloop.workqueue import ExponentialLimiter, WorkQueue

KEYS = st.sampled_from("abcde")


class QueueMachine(RuleBasedStateMachine):
    """The model: a list of waiting keys, a set in work, a set to come back, and a time per delayed key."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.queue: WorkQueue[str] = WorkQueue(ExponentialLimiter(1, 8), self.clock)
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


TestQueueAgainstModel = QueueMachine.TestCase
TestQueueAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
