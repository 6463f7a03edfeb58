"""The client's plain requests beside its peers: start, get, update, patch, list, watch; over TLS, from a kubeconfig, one client at a time.

Peers that take a millisecond and more for each object are measured with fewer of them; figures are for one object or request.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench import prepare, watches_many
from bench.clients import Peer
from bench.prepare import BUILD, HERE
from bench.replay import Replay
from bench.targets import Target

#: Of one client: phase to microseconds of CPU for one object or request; "start" for the process; "stream" and "watches" in MiB and KiB.
Costs = Mapping[str, float]

KUBELOOP = "kubeloop"
LIGHTKUBE = "lightkube"
GO_JSON = "client-go JSON"
GO_PROTOBUF = "client-go protobuf"

_ARGUMENTS = ("--server", "{server}", "--count", "{count}", "--last-rv", "{last_rv}", "--get", "{get}", "--requests", "{{requests}}")
_GO = (str(BUILD / "requests"), "-kubeconfig", "{kubeconfig}", "-control", "{control}", "-get", "{get}")
_GO_ALL = (*_GO, "-count", "{count}", "-last-rv", "{last_rv}", "-requests", "{{requests}}")
_PYTHONS = {
    KUBELOOP: (sys.executable, "kubeloop", "go"),
    LIGHTKUBE: (str(prepare.LIGHTKUBE), "lightkube", "lightkube"),
    "official client": (str(prepare.OFFICIAL), "official", "official"),
    "kubernetes_asyncio": (str(prepare.KUBERNETES_ASYNCIO), "asyncio", "kubernetes_asyncio"),
    "kr8s": (str(prepare.KR8S), "kr8s", "kr8s"),
}
REQUESTS = {
    name: Peer(name, (python, "-m", f"bench.peers.requests.{module}_requests", *_ARGUMENTS), needs=needs)
    for name, (python, module, needs) in _PYTHONS.items()
} | {GO_JSON: Peer(GO_JSON, _GO_ALL), GO_PROTOBUF: Peer(GO_PROTOBUF, (*_GO_ALL, "-content", "protobuf"))}
STARTS = {
    name: Peer(name, (python, str(HERE / "peers" / "starts" / f"start_{module}.py"), "{namespace}", "{name}"), needs=needs)
    for name, (python, module, needs) in _PYTHONS.items()
} | {GO_JSON: Peer(GO_JSON, (*_GO, "-only-get")), GO_PROTOBUF: Peer(GO_PROTOBUF, (*_GO, "-only-get", "-content", "protobuf"))}
STREAMS = {name: Peer(name, (*REQUESTS[name].command, "--stream"), needs=REQUESTS[name].needs) for name in (KUBELOOP, LIGHTKUBE)}

#: Clients that are fast enough for all pods and events, and all others.
FAST = (KUBELOOP, LIGHTKUBE, GO_JSON, GO_PROTOBUF)
SLOW = tuple(name for name in REQUESTS if name not in FAST)
PHASES = ("get", "update", "patch", "list", "unstructured", "unstructured, read", "metadata", "watch")


@dataclass(frozen=True)
class Sizes:
    pods: int = 10_000
    events: int = 10_000
    streamed: int = 50_000
    requests: int = 500
    rounds: int = 5
    starts: int = 15
    watches: int = 1000

    def smaller(self, scale: int) -> Sizes:
        """A smoke run, not a measurement."""
        if scale == 1:
            return self
        return Sizes(self.pods // scale, self.events // scale, self.streamed // scale, max(2, self.requests // scale), 1, 1, 20)


class Requests:
    """Runs all clients and keeps what each took. Rounds are interleaved, so that what disturbs the machine disturbs all alike."""

    def __init__(self, sizes: Sizes, missing: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._sizes = sizes
        self._say = say
        self.failed = {name: missing[peer.needs] for name, peer in REQUESTS.items() if peer.needs in missing}
        self._samples: dict[str, dict[str, list[float]]] = {}

    def run(self, only: Sequence[str] = ()) -> dict[str, dict[str, float]]:
        """Client to phase to median."""
        sizes = self._sizes
        wanted = [name for name in REQUESTS if name not in self.failed and (not only or name.startswith(tuple(only)))]
        with Replay(prepare.pods(sizes.pods, max(sizes.events, sizes.pods * 2))) as replay:
            for number in range(sizes.starts):
                self._round("start", number, [STARTS[name] for name in wanted], lambda peer: {"start": replay.start(peer) * 1e6})
            for number in range(sizes.rounds):
                peers = [REQUESTS[name] for name in wanted if name in FAST]
                self._round("requests", number, peers, lambda peer: self._phases(replay, peer, sizes.events, sizes.requests))
        slow = [REQUESTS[name] for name in wanted if name in SLOW]
        if slow:
            pods, events = max(10, sizes.pods // 10), max(10, sizes.events // 10)
            with Replay(prepare.pods(pods, events * 2)) as replay:
                for number in range(min(3, sizes.rounds)):
                    self._round("requests", number, slow, lambda peer: self._phases(replay, peer, events, max(2, sizes.requests // 5)))
        with Replay(prepare.pods(sizes.streamed, max(10, sizes.pods * 2))) as replay:
            self._round("stream", 0, [STREAMS[name] for name in wanted if name in STREAMS], lambda peer: self._stream(replay, peer))
        if KUBELOOP in wanted:
            self._say("watches")
            found = watches_many.run(sizes.watches)
            self._keep(KUBELOOP, {"watches": found["client"]["used_kib"] - found["socket"]["used_kib"]})
        return {name: {phase: statistics.median(each) for phase, each in phases.items()} for name, phases in self._samples.items()}

    def noise(self) -> float:
        """How far apart, at most, the middle half of the samples of a figure of kubeloop's lies, as a share of its median."""
        widths = [0.0]
        for values in self._samples.get(KUBELOOP, {}).values():
            if len(values) > 3:
                low, _, high = statistics.quantiles(values)
                widths.append((high - low) / statistics.median(values))
        return max(widths)

    def _round(self, name: str, number: int, peers: Sequence[Peer], measure: Callable[[Peer], Costs]) -> None:
        for peer in peers:
            if peer.name in self.failed:
                continue
            self._say(f"{name}, round {number + 1}: {peer.name}")
            try:
                self._keep(peer.name, measure(peer))
            except RuntimeError as error:
                self.failed[peer.name] = str(error)

    def _keep(self, name: str, costs: Costs) -> None:
        for phase, cost in costs.items():
            self._samples.setdefault(name, {}).setdefault(phase, []).append(cost)

    def _phases(self, replay: Replay, peer: Peer, events: int, requests: int) -> Costs:
        found = replay.run(_filled(peer, requests), events=events, tls=True)
        return {phase: found[phase]["cpu_s"] / found[phase]["objects"] * 1e6 for phase in PHASES if phase in found}

    def _stream(self, replay: Replay, peer: Peer) -> Costs:
        found = replay.run(_filled(peer, 1), events=1, tls=True)["stream"]
        return {"stream": found["hwm_kib"] / 1024}


def _filled(peer: Peer, requests: int) -> Peer:
    command = tuple(part.replace("{{requests}}", str(requests)) for part in peer.command)
    return Peer(peer.name, command, peer.environment, peer.needs)


def judge(results: Mapping[str, Costs]) -> Iterator[Target]:
    """What must be reached. What was not measured is not judged."""
    ours = results.get(KUBELOOP, {})

    def against(description: str, phase: str, share: float, peer: str) -> Iterator[Target]:
        theirs = results.get(peer, {}).get("list" if peer == KUBELOOP else phase)
        if phase in ours:
            against_text = f"{share:g} of {peer}, which is not measured" if theirs is None else f"{share:g} x {theirs:.4g} of {peer}"
            yield Target(description, "us", ours[phase], None if theirs is None else share * theirs, against_text)

    if "start" in ours:
        theirs = results.get(LIGHTKUBE, {}).get("start")
        against_text = f"1 of {LIGHTKUBE}, which is not measured" if theirs is None else f"1 x {theirs / 1e3:.4g} of {LIGHTKUBE}"
        yield Target(
            "process start to the first typed Pod, TLS, CPU",
            "ms",
            ours["start"] / 1e3,
            None if theirs is None else theirs / 1e3,
            against_text,
            120,
        )
    yield from against("list of pods, typed, per pod", "list", 0.6, LIGHTKUBE)
    yield from against("list of pods, Unstructured, per pod", "unstructured", 1.5, KUBELOOP)
    yield from against("list of pods, Unstructured, a field of each read, per pod", "unstructured, read", 1.5, KUBELOOP)
    yield from against("list of pods, metadata alone, per pod", "metadata", 0.5, KUBELOOP)
    for phase in ("get", "update", "patch"):
        yield from against(f"{phase} of a typed pod", phase, 1.3, LIGHTKUBE)
    for peer in (LIGHTKUBE, GO_JSON):
        yield from against("watch event, typed", "watch", 1, peer)
    if "stream" in ours:
        yield Target("list as a stream: highest resident memory", "MiB", ours["stream"], 100, "")
    if "watches" in ours:
        yield Target("one of many watches, beyond its socket", "KiB", ours["watches"], watches_many.TARGET, "")


def show(console: Console, title: str, results: Mapping[str, Costs], failed: Mapping[str, str]) -> None:
    """A column for each client; for a peer also how many times kubeloop's figure it is."""
    table = Table(title=title)
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
    rows = {"start": "start, ms"} | {phase: f"{phase}, us" for phase in PHASES} | {"stream": "stream, peak MiB", "watches": "a watch, KiB"}
    ours = results.get(KUBELOOP, {})
    for phase, title_of_row in rows.items():
        table.add_row(
            title_of_row, *(_cell(phase, costs.get(phase), None if costs is ours else ours.get(phase)) for costs in results.values())
        )
    console.print(table)
    for name, why in failed.items():
        console.print(f"[yellow]without {name}: {why.strip().splitlines()[-1]}")


def _cell(phase: str, value: float | None, ours: float | None) -> str:
    if value is None:
        return ""
    shown = f"{value / 1e3:.0f}" if phase == "start" else f"{value:.0f}"
    return shown if ours is None else f"{shown} [dim](x{value / ours:.1f})"
