"""One run: server, replicas, load and storm together, then silence, then the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from kubeloop.api.core.v1 import Namespace
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.codegen.crd import definitions_of
from kubeloop.meta import ObjectMeta, Unstructured
from kubeloop.testing import TlsTestServer
from tests.soak.controllers.history import History
from tests.soak.controllers.kinds import KINDS, NAMESPACES
from tests.soak.controllers.load import Load
from tests.soak.controllers.memory import Growth, growth
from tests.soak.controllers.notes import overlaps
from tests.soak.controllers.progress import Progress
from tests.soak.controllers.replicas import Replicas
from tests.soak.controllers.settings import Settings
from tests.soak.controllers.storm import Storm

#: Seconds in which the number of objects that are not reconciled must have become smaller, when all faults are over.
_STUCK = 180.0


@dataclass
class Outcome:
    """What a run has found. ``wrong``: the verdict, empty when all is well."""

    settings: Settings
    wrong: list[str] = field(default_factory=list)
    objects: int = 0
    changes: int = 0
    seconds: float = 0.0
    settling: float = 0.0
    reconciles: int = 0
    late: int = 0
    holders: list[str] = field(default_factory=list)
    writes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    again: int = 0
    growth: list[Growth] = field(default_factory=list)
    words: str = ""


async def run(settings: Settings, progress: Progress | None = None) -> Outcome:
    """Never raises for what the controllers do: that is in ``wrong``."""
    outcome = Outcome(settings)
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        server = await stack.enter_async_context(TlsTestServer(history_revisions=20_000))
        client = server.client()
        await _prepare(client, settings)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.touch(0o600)
        kubeconfig.write_bytes(server.kubeconfig)
        history = History(lambda: server.api.storage, elected=not settings.sharded)
        await stack.enter_async_context(_beside(history.follow()))
        replicas = await stack.enter_async_context(Replicas(folder, kubeconfig, settings))
        load = Load(client, settings.seed, settings.objects, settings.controllers)
        storm = Storm(server, load, history, settings)
        if progress is not None:
            await stack.enter_async_context(_beside(progress.follow(load, history, replicas, storm)))
        for _ in range(settings.replicas):
            await replicas.add()
        await load.make()
        await _settled(history)
        changes, rate = settings.changes, settings.rate * settings.controllers
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.change(changes, rate))
            tasks.create_task(storm.faults(changes, every=max(1, int(settings.every * rate))))
            tasks.create_task(storm.deaths(replicas, settings, storm.sharer if settings.sharded else storm.leader))
        began = time.monotonic()
        outcome.wrong += await _settled(history)
        outcome.settling = time.monotonic() - began
        history.read()
        outcome.wrong += history.wrong(load.wanted) + storm.violations
        last = {one.identity for one in replicas.living}
        await asyncio.gather(*(replicas.ask(one) for one in replicas.living))
        history.read()
        outcome.wrong += replicas.violations + history.violations
        await asyncio.to_thread(_examine, outcome, replicas, last)
        outcome.objects, outcome.changes, outcome.seconds, outcome.again = load.made, load.changed, load.seconds, load.again
        outcome.holders, outcome.writes, outcome.faults, outcome.ended = history.holders, history.writes, storm.counts, replicas.ended
        outcome.words = replicas.words()
    return outcome


def _examine(outcome: Outcome, replicas: Replicas, last: set[str]) -> None:
    accounts = replicas.account()
    wrong, outcome.late = overlaps(list(accounts.values()))
    outcome.wrong += wrong
    outcome.reconciles = sum(len(account.intervals) for account in accounts.values())
    outcome.growth = growth({name: account for name, account in accounts.items() if name in last})
    if outcome.settings.memory:
        outcome.wrong += [str(one) for one in outcome.growth if one.too_much]
        if not outcome.growth:
            outcome.wrong.append("no replica lived for more than a minute, so that the growth of its memory is unknown")


async def _prepare(client: Client, settings: Settings) -> None:
    for name in NAMESPACES:
        await client.create(Namespace(metadata=ObjectMeta(name=name)))
    for definition in definitions_of(KINDS[: settings.controllers]):
        await client.apply(Unstructured.from_dict(definition.document), field_manager="soak", force=True)
    for kind in KINDS[: settings.controllers]:
        await client.list(kind, namespace=ALL_NAMESPACES)


async def _settled(history: History) -> list[str]:
    """Wait until each object is reconciled; return the errors if there is no progress."""
    fewest, since = history.unsettled, time.monotonic()
    while history.unsettled:
        await asyncio.sleep(0.1)
        if history.unsettled < fewest:
            fewest, since = history.unsettled, time.monotonic()
        if time.monotonic() - since > _STUCK:
            return [f"{history.unsettled} objects are not reconciled, and for {_STUCK:.0f} s nothing has changed that"]
    return []


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
