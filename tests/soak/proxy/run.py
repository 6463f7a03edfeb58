"""A run: random rules, writes, faults, reloads and restarts of proxy and server; then all stores must equal the rewritten state.

The server is the embedded one or a real one. Rules always remove the key ``secret`` of each ConfigMap: no client may see it at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import NotFound, ObjectMeta
from kubeloop.proxy import ProxyOptions, ProxyServer
from kubeloop.proxy.rules import RewriteContext
from tests.soak.proxy.mirrors import SECRET, GoMirror, KubeloopMirror, Mirror, Store, shown
from tests.soak.proxy.servers import NAMESPACES, FaultyServer, embedded_server, real_server

#: Seconds in which all stores must equal the rewritten state after the last fault: client-go's back-off is up to 60 s.
PATIENCE: Final = 130.0
_NAMES: Final = 12

_RULE: Final = """\
apiVersion: proxy.kubeloop.dev/v1alpha1
kind: RewriteRule
metadata: {{name: {name}}}
spec:
  match:
  - {{groups: [""], resources: [configmaps]{match}}}
{rest}
  writes: Pass
"""
#: Name of a rule, what follows in its match entry, and the rest of its spec.
_CHOICES: Final = (
    ("hide-label", ', labelSelector: "tier=back"', "  actions:\n  - drop: true"),
    ("hide-shop", ", namespaces: [shop]", "  actions:\n  - drop: true"),
    ("hide-names", ', names: ["map-1*"]', "  actions:\n  - drop: true"),
    (
        "hide-data",
        "",
        "  when: \"has(object.data) && 'step' in object.data && object.data.step.endsWith('3')\"\n  actions:\n  - drop: true",
    ),
    ("set-data", ', labelSelector: "tier!=back"', "  actions:\n  - set: {data.step: rewritten}"),
    ("label", "", "  actions:\n  - mergePatch: {metadata: {labels: {seen: proxy}}}"),
    ("patch", ', labelSelector: "tier=front"', "  actions:\n  - jsonPatch: [{op: add, path: /data/patched, value: x}]"),
)
_ALWAYS: Final = _RULE.format(name="no-secrets", match="", rest=f"  actions:\n  - remove: [data.{SECRET}]")


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    Attributes:
        rounds: Number of comparisons.
        steps: Writes and faults before each comparison.
        seed: Seed of rules, writes and faults.
        go: Go is installed, so that client-go's informers run.
        cache: Whether the proxy caches: ``always``, ``never``, or ``mixed``, drawn at each of its starts.
        real: Kubeconfig of a real server. None: the embedded one.
    """

    rounds: int
    steps: int
    seed: int
    go: bool
    cache: str = "mixed"
    real: Path | None = None


def random_rules(rng: random.Random) -> str:
    """Return a file of rules. The rule that removes secrets is always in it."""
    chosen = [choice for choice in _CHOICES if rng.random() < 0.3]
    rng.shuffle(chosen)
    return "---\n".join([_ALWAYS, *(_RULE.format(name=name, match=match, rest=rest) for name, match, rest in chosen)])


class ProxyRun:
    """One run. ``play`` takes the steps of a round; ``differences`` ends the faults and compares all stores."""

    def __init__(self, settings: Settings, folder: Path, server: FaultyServer) -> None:
        self._settings = settings
        self._folder = folder
        self._server = server
        self._rng = random.Random(settings.seed)
        self._client: Client = server.client
        self._proxy: ProxyServer | None = None
        self._port = 0
        self._has_cached = False
        self.mirrors: list[Mirror] = []
        #: Number of steps by name.
        self.steps: Counter[str] = Counter()
        self._number = 0
        self._choices: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "write": (60, self._write),
            "reload": (6, self._reload),
            "restart the proxy": (2, self._restart_proxy),
            "restart the proxy with other rules": (1, self._restart_with_other_rules),
            "pause": (10, self._pause),
            **server.faults,
        }

    async def start(self, stack: AsyncExitStack) -> None:
        """Start proxy and clients; ``stack`` ends them."""
        self._write_rules()
        stack.push_async_callback(self._stop_proxy)
        await self._start_proxy()
        assert self._proxy is not None
        kubeconfig = self._folder / "kubeconfig"
        kubeconfig.write_bytes(self._proxy.kubeconfig())
        for watch_list in (True, False):
            self.mirrors.append(await KubeloopMirror.start(kubeconfig, watch_list=watch_list))
        if self._settings.go:
            self.mirrors.append(await GoMirror.start(kubeconfig))
        for mirror in self.mirrors:
            stack.push_async_callback(mirror.close)

    @property
    def has_cached(self) -> bool:
        """Whether a proxy has answered a read from its cache."""
        assert self._proxy is not None
        return self._has_cached or 'kubeloop_proxy_cache_requests_total{outcome="cached"}' in self._proxy.metrics()

    async def play(self) -> None:
        """Take the steps of a round."""
        names = list(self._choices)
        weights = [self._choices[name][0] for name in names]
        for name in self._rng.choices(names, weights, k=self._settings.steps):
            self.steps[name] += 1
            await self._choices[name][1]()

    async def differences(self) -> list[str]:
        """Wait until all stores equal the rewritten state. Return the differences that are left, and what clients saw wrongly."""
        deadline = time.monotonic() + PATIENCE
        while True:
            expected = await self._expected()
            found: list[str] = []
            for mirror in self.mirrors:
                for name, store in (await mirror.stores()).items():
                    found += [f"{name}: {line}" for line in _compared(store, expected)]
                found += [f"FAULT {line}" for line in mirror.faults()]
            if not found or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.1)

    async def _expected(self) -> Store:
        assert self._proxy is not None
        user = self._proxy.user
        selection = self._proxy.rules.select(RewriteContext(user, "list", "", "v1", "configmaps", "", "", "", ""))
        assert selection is not None
        expected: Store = {}
        async for found in self._client.list(ConfigMap, namespace=ALL_NAMESPACES):
            tree = {"apiVersion": "v1", "kind": "ConfigMap", **found.to_dict()}
            seen = selection.rewrite(tree).object
            if seen is not None:
                expected[f"{found.metadata.namespace}/{found.metadata.name}"] = shown(seen)
        return expected

    # ---------------------------------------------------------------------------------------------------------- steps

    async def _write(self) -> None:
        rng = self._rng
        self._number += 1
        namespace, name = rng.choice(NAMESPACES), f"map-{rng.randrange(_NAMES)}"
        labels = {"tier": rng.choice(("front", "back"))} if rng.random() < 0.8 else {}
        data = {"step": str(self._number), SECRET: "hidden"}
        if rng.random() < 0.3:
            with contextlib.suppress(NotFound):
                await self._client.delete(ConfigMap, name, namespace=namespace)
            return
        desired = ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels), data=data)
        try:
            current: Any = await self._client.get(ConfigMap, name, namespace=namespace)
        except NotFound:
            await self._client.create(desired)
            return
        current.metadata.labels, current.data = labels, data
        await self._client.update(current)

    async def _reload(self) -> None:
        self._write_rules()
        assert self._proxy is not None
        await self._proxy.reload()

    async def _restart_proxy(self) -> None:
        await self._stop_proxy()
        await asyncio.sleep(self._rng.random() * 0.3)
        await self._start_proxy()

    async def _restart_with_other_rules(self) -> None:
        await self._stop_proxy()
        self._write_rules()
        await self._start_proxy()

    async def _pause(self) -> None:
        await asyncio.sleep(self._rng.random() * 0.05)

    def _write_rules(self) -> None:
        (self._folder / "rules.yaml").write_text(random_rules(self._rng))

    async def _start_proxy(self) -> None:
        mode = self._settings.cache
        cache = mode == "always" or (mode == "mixed" and self._rng.random() < 0.5)
        self.steps["start the proxy with a cache" if cache else "start the proxy without a cache"] += 1
        options = ProxyOptions(port=self._port, rules=self._folder / "rules.yaml", data_dir=self._folder / "proxy", cache=cache)
        proxy = ProxyServer(self._server.config, options)
        await proxy.start()
        self._proxy = proxy
        self._port = int(proxy.url.rpartition(":")[2])

    async def _stop_proxy(self) -> None:
        if self._proxy is not None:
            self._has_cached = self.has_cached  # the metrics end with the proxy
            await self._proxy.stop()


def _compared(store: Store, expected: Store) -> list[str]:
    lines = [f"{key} is missing" for key in sorted(expected.keys() - store.keys())]
    lines += [f"{key} should not be there" for key in sorted(store.keys() - expected.keys())]
    return lines + [
        f"{key} is {store[key]}, not {expected[key]}" for key in sorted(store.keys() & expected.keys()) if store[key] != expected[key]
    ]


async def run(settings: Settings, folder: Path, report: Callable[[ProxyRun, int], None]) -> list[str]:
    """Run all rounds. Return the differences of the first round that has some."""
    async with AsyncExitStack() as stack:
        source = embedded_server() if settings.real is None else real_server(settings.real)
        server = await stack.enter_async_context(source)
        played = ProxyRun(settings, folder, server)
        await played.start(stack)
        for number in range(1, settings.rounds + 1):
            await played.play()
            found = await played.differences()
            report(played, number)
            if found:
                return found
    return []
