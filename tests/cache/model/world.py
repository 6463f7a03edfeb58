"""A world of informers under faults: a server that writes happen on, a network that fails, handlers that come and go.

``World.do`` takes one step of a program; ``World.end_list`` ends the faults and lists the remaining errors.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Protocol, Self

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import ByLabel, Informer, InformerFactory, Sorted, WatchPolicy
from kubeloop.cache.handlers.registration import Registration
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.config import ClusterConfig
from kubeloop.serving.request import Request
from kubeloop.testing import TlsTestServer
from kubeloop.transport import Transport
from tests.cache.model.contract import ContractChecker, Key, Seen, seen
from tests.cache.model.history import Content, StorageWriter, Writer
from tests.cache.model.hurried import HurriedClock
from tests.faults import FaultProxy

#: Longer than a watch lasts: a watch that is silent by then is opened again.
WATCHES_END = 700.0
#: Seconds of the machine in which everything must have come to rest.
_PATIENCE = 20.0


@dataclass(frozen=True)
class Step:
    """``amount`` from 0 to 99: how much, how long or which one."""

    name: str
    amount: int = 0
    seed: int = 0


class ServerSide(Protocol):
    """The server of a world. ``faults``: the steps that it can take itself."""

    config: ClusterConfig
    writer: Writer
    faults: dict[str, Callable[[Step], Any]]

    def rest(self) -> None:
        """All faults have ended."""


class EmbeddedSide:
    """The embedded server in this event loop."""

    def __init__(self, server: TlsTestServer, clock: HurriedClock) -> None:
        self._server = server
        self._clock = clock
        self.config = server.config
        self.writer: Writer = StorageWriter(server)
        self.faults: dict[str, Callable[[Step], Any]] = {
            "expire streams": lambda _: server.faults.expire_streams(),
            "expire lists": lambda step: server.faults.expire_next(times=1 + step.amount % 3, matching=_is_list),
            "compact": lambda _: self._compact(),
            "repeat bookmarks": lambda step: self._repeat(step.amount % 2 == 0),
            "crash": lambda step: self._crash(step, forget=False),
            "crash and forget": lambda step: self._crash(step, forget=True),
        }

    def rest(self) -> None:
        self._server.faults.requests.clear()

    def _repeat(self, repeat: bool) -> None:
        self._server.faults.repeat_bookmarks = repeat
        self._clock.jump(61)  # bookmarks come every minute

    async def _compact(self) -> None:
        api = self._server.api
        await api.compactor.compact(await api.storage.revision())
        self._server.faults.cut_streams()

    async def _crash(self, step: Step, *, forget: bool) -> int:
        """The revision after it."""
        await self._server.crash()
        # Long enough to be noticed: a back-off is at most twice 0.8 s for the first failure.
        await self._clock.sleep(3 + step.amount / 5)
        await self._server.come_back(forget=forget)
        return await self._server.api.storage.revision()


def _is_list(request: Request) -> bool:
    return request.method == "GET" and request.path.endswith("/configmaps") and "watch" not in request.query


@dataclass
class View:
    """One informer, what it must show, and who listens."""

    name: str
    informer: Informer[Any]
    selects: Callable[[Key, Content], bool]
    #: The present ones of ``color``, ``mark``, ``app`` and ``sorted``.
    indexes: tuple[str, ...] = ()
    handlers: list[tuple[ContractChecker, Registration[Any]]] = field(default_factory=list)


class World:
    """``async with World(side, clock, seed) as world``. The same seed and program give the same writes, not the same interleaving."""

    def __init__(
        self, side: ServerSide, clock: HurriedClock, seed: int, *, namespaces: tuple[str, ...] = ("a", "b", "c"), names: int = 12
    ) -> None:
        self._side = side
        self._clock = clock
        self._rng = random.Random(seed)
        self._namespaces = namespaces
        self._names = [f"n{number}" for number in range(names)]
        self._client = Client(Transport(side.config))
        self._numbers = 0
        self._folder = TemporaryDirectory(prefix="kubeloop-world-")
        self.proxy = FaultProxy(side.config.server)
        self.views: list[View] = []
        self.writes = 0
        self.faults: Counter[str] = Counter()
        #: Events delivered to handlers that are gone.
        self._events = 0
        self._forgetful = False
        self._violations: list[str] = []

    async def __aenter__(self) -> Self:
        await self.proxy.__aenter__()
        self._client = Client(Transport(self.proxy.config(self._side.config), clock=self._clock))
        self._informers = InformerFactory(self._client, clock=self._clock, rng=random.Random(self._rng.random()))
        self.views = self._streamed()
        self._add_handlers(self.views)
        await self._informers.__aenter__()
        await self._begin_second_life()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._lasting.__aexit__(kind, error, trace)
        await self._informers.__aexit__(kind, error, trace)
        await self._client.close()
        await self.proxy.__aexit__(kind, error, trace)
        self._folder.cleanup()

    def _streamed(self) -> list[View]:
        of, first, second = self._informers.for_kind, self._namespaces[0], self._namespaces[1]
        path: dict[str, Any] = {"color": "data.color"}
        others: dict[str, Any] = {"mark": _mark, "app": ByLabel("app"), "sorted": Sorted("data.color")}
        of_web = of(ConfigMap, label_selector="app=web", indexes=path, namespace=ALL_NAMESPACES)
        return [
            View(
                "all",
                of(ConfigMap, indexes=path | others, namespace=ALL_NAMESPACES),
                lambda key, _: True,
                ("color", "mark", "app", "sorted"),
            ),
            View("web", of_web, lambda _, config_map: config_map.labels.get("app") == "web", ("color",)),
            View("one namespace", of(ConfigMap, namespace=first, page_size=3), lambda key, _: key[0] == first),
            View("two namespaces", of(ConfigMap, namespace=[first, second]), lambda key, _: key[0] in (first, second)),
            View(
                "metadata",
                self._informers.metadata(ConfigMap, label_selector="app", namespace=ALL_NAMESPACES),
                lambda _, config_map: "app" in config_map.labels,
            ),
            View("a field", of(ConfigMap, fields=["data.color"], indexes=path, namespace=ALL_NAMESPACES), lambda key, _: True, ("color",)),
        ]

    async def _begin_second_life(self) -> None:
        """Informers that list rather than stream, and begin where those before them ended: what those saved lies on disk."""
        policy = WatchPolicy(watch_list=False)
        rng = random.Random(self._rng.random())
        self._lasting = InformerFactory(
            self._client, clock=self._clock, rng=rng, policy=policy, persist=self._folder.name, persist_every=60 * rng.randrange(3)
        )
        of: dict[str, Any] = {
            "namespace": ALL_NAMESPACES,
            "indexes": {"color": "data.color", "app": ByLabel("app"), "sorted": Sorted("data.color")},
        }
        views = [
            View("listed", self._lasting.for_kind(ConfigMap, **of), lambda key, _: True, ("color", "app", "sorted")),
            View(
                "web listed",
                self._lasting.for_kind(ConfigMap, label_selector="app=web", namespace=ALL_NAMESPACES),
                lambda _, config_map: config_map.labels.get("app") == "web",
            ),
        ]
        self._add_handlers(views)
        self.views += views
        await self._lasting.__aenter__()

    async def _restart(self) -> None:
        await self._lasting.__aexit__(None, None, None)
        ended, self.views = self.views[-2:], self.views[:-2]
        for view in ended:
            for checker, _ in view.handlers:
                self._ended(checker)
        await self._begin_second_life()

    def _add_handlers(self, views: list[View]) -> None:
        for view in views:
            self._add_handler(view, Step("handler", 0))
            self._add_handler(view, Step("handler", 1))

    # --------------------------------------------------------------------------------------------------------------- steps

    @property
    def events(self) -> int:
        """Events delivered to all handlers so far."""
        return self._events + sum(checker.events for view in self.views for checker, _ in view.handlers)

    @property
    def lists(self) -> Counter[str]:
        """How often everything was asked for, by reason."""
        return sum((feed.listwatch.lists for view in self.views for feed in view.informer._runner.feeds), Counter())

    @property
    def restarts(self) -> Counter[str]:
        """How often a watch was opened again, by reason."""
        return sum((feed.listwatch.restarts for view in self.views for feed in view.informer._runner.feeds), Counter())

    async def do(self, step: Step) -> None:
        """Take a step: write, fail, let time pass, or change who listens."""
        match step.name:
            case "write":
                await self._write(step)
            case "handler":
                self._add_handler(self.views[step.seed % len(self.views)], step)
            case "remove handler":
                await self._remove_handler(self.views[step.seed % len(self.views)])
            case "restart":
                await self._restart()
            case "time passes":
                await self._clock.sleep(step.amount / 10)
            case _:
                await self._fail(step)

    async def _write(self, step: Step) -> None:
        rng = random.Random(step.seed)
        for _ in range(step.amount + 1):
            await self._side.writer.write(rng, (rng.choice(self._namespaces), rng.choice(self._names)))
            self.writes += 1
            if rng.random() < 0.1:
                await asyncio.sleep(0)

    async def _fail(self, step: Step) -> None:
        proxy = self.proxy
        network: dict[str, Callable[[], Any]] = {
            "cut": proxy.cut,
            "reset": proxy.reset,
            "half close": proxy.half_close,
            "cut in mid-frame": lambda: proxy.cut_after(step.amount * 37 + 1, times=1 + step.seed % 3),
            "lose": proxy.lose,
            "freeze": proxy.freeze,
            "thaw": proxy.thaw,
            "refuse": proxy.refuse,
            "accept": proxy.accept,
            "clock jumps": lambda: self._clock.jump(step.amount * 10),
        }
        if step.name in network:
            done = network[step.name]()
        elif step.name in self._side.faults:
            if step.name == "crash and forget":
                self._forget()
            done = self._side.faults[step.name](step)
        else:
            raise ValueError(f"no step is called {step.name!r}")
        result = await done if asyncio.iscoroutine(done) else done
        if step.name == "crash and forget":
            await self._noticed(result)
        self.faults[step.name] += 1

    async def _noticed(self, revision: int) -> None:
        """All informers have seen that versions restarted. Once the new versions had passed the old ones, none could."""
        self.proxy.thaw()
        await self.proxy.accept()
        feeds = [feed for view in self.views for feed in view.informer._runner.feeds]
        if not await self._until(lambda: all(0 < int(feed.version or "0") <= revision for feed in feeds)):
            self._violations += [f"{feed.description} is at {feed.version}, the server came back at {revision}" for feed in feeds]

    def _forget(self) -> None:
        self._forgetful = True
        for view in self.views:
            for checker, _ in view.handlers:
                checker.server_forgets = True

    def _add_handler(self, view: View, step: Step) -> None:
        self._numbers += 1
        slow, coalesce = step.amount % 2 == 1, step.amount % 3 == 2
        checker = ContractChecker(f"{view.name} {self._numbers}{' slow' * slow}{' coalescing' * coalesce}", coalescing=coalesce)
        checker.server_forgets = self._forgetful
        rng = random.Random(step.seed)

        async def pause() -> None:
            if rng.random() < 0.02:
                await self._clock.sleep(rng.random() * 3)

        options = {"coalesce": coalesce, "resync": 30.0 if step.amount % 5 == 4 else 0.0}
        view.handlers.append((checker, checker.attach(view.informer, pause=pause if slow else None, **options)))

    async def _remove_handler(self, view: View) -> None:
        if len(view.handlers) > 1:
            checker, registration = view.handlers.pop(1)
            registration.remove()
            checker.removed()
            await asyncio.sleep(0)
            self._ended(checker)

    def _ended(self, checker: ContractChecker) -> None:
        checker.removed()
        self._events += checker.events
        self._violations += checker.violations

    # -------------------------------------------------------------------------------------------------------------- the end

    async def settle(self) -> list[str]:
        """End all faults, wait until nothing changes any more, and return the differences from the expected state."""
        self.proxy.thaw()
        await self.proxy.accept()
        content = await self._side.writer.content()
        content = {key: one for key, one in content.items() if key[0] in self._namespaces}
        for view in self.views:
            self._violations += await self._come_to_rest(view, content)
        self._side.rest()
        violations, self._violations = self._violations, []
        for view in self.views:
            for checker, _ in view.handlers:
                violations += checker.violations
                checker.violations.clear()
        return violations

    async def _come_to_rest(self, view: View, content: dict[Key, Content]) -> list[str]:
        expected = {key: one for key, one in content.items() if view.selects(key, one)}
        states = {key: one.seen for key, one in expected.items()}
        if not await self._until(lambda: self._shown(view) == states):
            return [f"informer {view.name} at {view.informer.resource_version}: {line}" for line in _difference(self._shown(view), states)]
        wrong = list(_index_faults(view, expected, self._namespaces))
        for checker, registration in view.handlers:
            if not await self._until(partial(self._is_delivered, checker, registration, states)):
                wrong.append(f"handler {checker.name}: {registration.pending} events still wait for it")
            elsewhere = {key: one for key, one in checker.states.items() if key[0] not in self._namespaces}
            checker.finish(elsewhere | states)
        return wrong

    def _shown(self, view: View) -> dict[Key, Seen]:
        return {key: one for key, one in seen(view.informer.lister.heads()).items() if key[0] in self._namespaces}

    def _is_delivered(self, checker: ContractChecker, registration: Registration[Any], states: dict[Key, Seen]) -> bool:
        return registration.pending == 0 and {key: one for key, one in checker.states.items() if key[0] in self._namespaces} == states

    async def _until(self, condition: Callable[[], bool]) -> bool:
        loop = asyncio.get_running_loop()
        began = jumped = loop.time()
        pause = 0.1
        while not condition():
            now = loop.time()
            if now - began > _PATIENCE:
                return False
            if now - jumped > pause:
                # Rarer each time: a jump ends requests under way too, and a slow machine must get one done at last.
                jumped, pause = now, pause * 2
                self._clock.jump(WATCHES_END)
            await asyncio.sleep(0.002)
        return True


async def leaks(tasks_before: set[asyncio.Task[Any]], clock: HurriedClock, world: World) -> list[str]:
    """After all blocks have been left: the remaining objects."""

    def tasks() -> set[asyncio.Task[Any]]:
        return {task for task in asyncio.all_tasks() - tasks_before if not task.done()}

    for turn in range(500):  # what has been cancelled or closed needs some turns to go
        await asyncio.sleep(0.001)
        if turn > 3 and not tasks() and not clock.timers:
            break
    found = [f"task {task.get_name()} still runs: {task.get_coro()}" for task in tasks()]
    found += [f"{len(clock.timers)} timers are still set"] * bool(clock.timers)
    return found + [f"{world.proxy.open} connections of the proxy are open"] * bool(world.proxy.open)


def _mark(config_map: ConfigMap) -> str:
    """What the function index finds objects by."""
    return config_map.metadata.name[-1:] + (config_map.data or {}).get("color", "")[:1]


def _difference(shown: dict[Key, Seen], expected: dict[Key, Seen]) -> Iterable[str]:
    for key in sorted(shown.keys() | expected.keys()):
        if shown.get(key) != expected.get(key):
            yield f"shows {'/'.join(key)} as {shown.get(key)}, the server has {expected.get(key)}"


def _index_faults(view: View, expected: dict[Key, Content], namespaces: tuple[str, ...]) -> Iterable[str]:
    """The places where an index of the view differs from an index that is built from the server's objects."""
    lister = view.informer.lister
    wanted: dict[str, dict[str, set[Key]]] = {}
    for key, one in expected.items():
        wanted.setdefault("color", {}).setdefault(one.color, set()).add(key)
        wanted.setdefault("mark", {}).setdefault(key[1][-1:] + one.color[:1], set()).add(key)
        if one.color:  # an absent value has no place in an order
            wanted.setdefault("sorted", {}).setdefault(one.color, set()).add(key)
        if "app" in one.labels:
            wanted.setdefault("app", {}).setdefault(one.labels["app"], set()).add(key)
    for name in view.indexes:
        found = {value: lister.heads_by_index(name, value) for value in lister.index_values(name)}
        values = {value: {(head.namespace, head.name) for head in heads if head.namespace in namespaces} for value, heads in found.items()}
        values = {value: keys for value, keys in values.items() if keys}
        if values != wanted.get(name, {}):
            yield f"informer {view.name}: index {name} has {values}, but {wanted.get(name, {})} is right"
    if "sorted" in view.indexes:
        colors = [head.value("data.color") for head in lister.heads_in_range("sorted")]
        if colors != sorted(colors):
            yield f"informer {view.name}: the sorted index answers {colors}, which is no order"
