"""What must be reached: each target as a figure of kubeloop's, a limit (mostly a share of a peer's figure), and a goal beyond it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench import clients
from bench.bitcoin import BitcoinRun
from bench.clients import Peer
from bench.controlplane import REAL as CONTROL_PLANE
from bench.controlplane import TWO_PROCESSES, ControlPlaneRun, IdleRun
from bench.figures import InformerFigures, Queries
from bench.ingress import IngressRun
from bench.servers import DISK, MEMORY, REAL, Server

Found = Mapping[str, Mapping[str, InformerFigures]]
"""Stage to client to figures."""


@dataclass(frozen=True)
class Target:
    """``ours`` at most ``limit``. ``limit`` None: the peer could not be measured here. ``goal``: where we would like to be."""

    what: str
    unit: str
    ours: float
    limit: float | None
    against: str
    goal: float | None = None

    @property
    def met(self) -> bool | None:
        return None if self.limit is None else self.ours <= self.limit

    @property
    def goal_met(self) -> bool | None:
        return None if self.goal is None else self.ours <= self.goal


class _Judge:
    def __init__(self, measured: Found) -> None:
        self._found = measured

    def ours(self, stage: str, field: str, peer: Peer = clients.KUBELOOP) -> float | None:
        figures = self._found.get(stage, {}).get(peer.name)
        value: float | None = None if figures is None else getattr(figures, field)
        return value

    def share(self, description: str, unit: str, ours: float | None, share: float, stage: str, field: str, peer: Peer) -> Iterator[Target]:
        theirs = self.ours(stage, field, peer)
        if ours is not None:
            against_text = (
                f"{share:g} x {theirs:.4g} of {peer.name}" if theirs is not None else f"{share:g} of {peer.name}, which is not measured"
            )
            yield Target(description, unit, ours, None if theirs is None else share * theirs, against_text)

    def limit(
        self, description: str, unit: str, ours: float | None, limit: float, against: str = "", goal: float | None = None
    ) -> Iterator[Target]:
        if ours is not None:
            yield Target(description, unit, ours, limit, against, goal)


def informers(measured: Found) -> Iterator[Target]:
    """Of the default stages."""
    judge = _Judge(measured)
    for stage, how in (("10k", "HTTP"), ("10k-tls", "TLS")):
        event = judge.ours(stage, "event_us")
        what = f"watch event, {how}"
        yield from judge.share(what, "us", event, 0.6, stage, "event_us", clients.CLIENT_GO_PROTOBUF)
        yield from judge.share(what, "us", event, 0.1, stage, "event_us", clients.CLIENT_GO_JSON)
        yield from judge.share(what, "us", event, 0.35, stage, "event_us", clients.KUBE_RS_STRIPPED)
    if (event := judge.ours("10k", "event_us")) is not None:
        yield Target("watch event, HTTP", "us", event, None, "the goal alone", 15)
    read = judge.ours("10k", "event_us", clients.KUBELOOP_READING)
    yield from judge.share("event, handler reads old and new", "us", read, 0.5, "10k", "event_us", clients.CLIENT_GO_JSON)
    yield from judge.share("event, handler reads old and new", "us", read, 1, "10k", "event_us", clients.KUBE_RS)
    listed = judge.ours("50k", "listed_us")
    yield from judge.share("sync of 50,000, per object", "us", listed, 0.8, "50k", "listed_us", clients.CLIENT_GO_PROTOBUF)
    if listed is not None:
        yield Target("sync of 50,000, per object", "us", listed, None, "the goal alone", 25)
    kept = judge.ours("50k", "floor_kib", clients.KUBELOOP_WHOLE)
    what = "memory per object at 50,000, managedFields kept"
    yield from judge.share(what, "KiB", kept, 1 / 8, "50k", "floor_kib", clients.CLIENT_GO_PROTOBUF_STRIPPED)
    yield from judge.share(what, "KiB", kept, 1 / 10, "50k", "floor_kib", clients.KUBE_RS_STRIPPED)
    if kept is not None:
        yield Target(what, "KiB", kept, None, "the goal alone", 1.5)
    for stage, peer, room in (("50k", clients.KUBELOOP_WHOLE, 64), ("50k", clients.KUBELOOP, 64), ("200k", clients.KUBELOOP, 100)):
        peak, final = judge.ours(stage, "peak_mib", peer), judge.ours(stage, "settled_mib", peer)
        if peak is not None and final is not None:
            yield Target(f"peak of the sync, {stage}, {peer.name}", "MiB", peak, final + room, f"final {final:.0f} + {room}")


def reading(queries: Queries) -> Iterator[Target]:
    yield Target("typed read by key, decode included", "us", queries.get_us, 40, "")
    yield Target(f"list {queries.selected:,} of 100,000 by label, CPU", "s", queries.select_s, 0.3, "")
    yield Target(f"list {queries.selected:,} of 100,000 by label, longest stall", "ms", queries.stall_ms, 20, "")
    yield Target(f"restart from disk, {queries.restarted:,} objects, CPU", "s", queries.restart_s, 1, "", 0.3)


def million(measured: Found) -> Iterator[Target]:
    judge = _Judge(measured)
    yield from judge.limit(
        "1,000,000 pods: resident at most", "MiB", judge.ours("1m", "highest_mib", clients.KUBELOOP_PAGES), 2560, "", 1536
    )
    event = judge.ours("1m", "event_us", clients.KUBELOOP_PAGES)
    yield from judge.share("watch event at 1,000,000", "us", event, 1.2, "10k", "event_us", clients.KUBELOOP)


def starts(results: Mapping[str, float]) -> Iterator[Target]:
    ours, theirs = results.get("kubeloop"), results.get("lightkube")
    if ours is not None and theirs is not None:
        yield Target("process start to the first typed Pod, CPU", "ms", ours * 1e3, theirs * 1e3, f"1 x {theirs * 1e3:.0f} of lightkube")


#: What one worker, and each of eight, may take at most of what kube-apiserver takes for the same request.
_WRITES = {"create": (1.0, 2.0), "get": (1.0, 2.0), "patch": (1.0, 2.0), "delete": (1.0, 2.0), "apply": (2.0, 2.0)}


def servers(results: Mapping[str, Server]) -> Iterator[Target]:
    """The embedded server beside the real one, both in memory; and on disk beside itself."""
    judge = _Judge({})
    ours, real, disk = results.get(MEMORY), results.get(REAL), results.get(DISK)
    if ours is not None and real is not None:
        yield Target("start to the first answer", "s", ours.start_s, real.start_s / 4, f"1/4 x {real.start_s:.3g}", real.start_s / 8)
        yield Target("resident when fresh", "MiB", ours.fresh_mib, real.fresh_mib / 3, f"1/3 x {real.fresh_mib:.4g}")
        for what, shares in _WRITES.items():
            for workers, share in zip((1, 8), shares, strict=True):
                yield from _beside(ours, real, what, workers, share, "per_second")
        for what in ours.loads:
            if what.startswith("list of") and what.endswith(", 1"):
                yield from _beside(ours, real, what.removesuffix(", 1"), 1, 1.0, "p50_ms")
        for watchers in (1, 100):
            yield from _beside(ours, real, "change to watcher", watchers, 2.0, "p50_ms")
    if ours is not None and disk is not None:
        yield from _beside(disk, ours, "create", 8, 2.0, "per_second", " on disk")
    if ours is not None and ours.filled:
        yield from judge.limit(f"memory of an object of 2 KB, of {ours.filled:,}", "KiB", ours.object_kib, 3.0)
        parts = [load for what, load in ours.loads.items() if "objects" in what]
        if parts:
            first, last = (1e6 / part.per_second for part in (parts[0], parts[-1]))
            yield Target("create, of the last tenth of them", "us", last, 1.5 * first, f"1.5 x {first:.4g} of the first")


def control_planes(results: Mapping[str, ControlPlaneRun]) -> Iterator[Target]:
    """The embedded control plane beside Kubernetes' own: time and CPU at most as much, memory at most a third.

    The controllers run in a second process, as those of Kubernetes do.
    """
    ours, real = results.get(TWO_PROCESSES), results.get(CONTROL_PLANE)
    if ours is None or real is None:
        return
    for label, mine, other in (("up", ours.up, real.up), ("down", ours.down, real.down)):
        yield Target(f"Deployment {label}", "s", mine.seconds, other.seconds, f"{other.seconds:.3g}")
        yield Target(f"Deployment {label}, CPU", "s", mine.cpu_s, other.cpu_s, f"{other.cpu_s:.3g}")
    yield Target("resident with all pods", "MiB", ours.up.resident_mib, real.up.resident_mib / 3, f"1/3 x {real.up.resident_mib:.4g}")


def idle_cluster(run: IdleRun) -> Target:
    """An idle cluster of 1,000 nodes and 10,000 pods takes at most 20 % of a core."""
    return Target("idle cluster", "% of a core", 100 * run.share, 20.0, "20")


def process_pod(durations: Sequence[float]) -> Target:
    """A Deployment of one process pod is Ready within a second of kubectl apply, also the slowest of several."""
    return Target("process pod Ready", "s", max(durations), 1.0, "1")


def bitcoin_operator(run: BitcoinRun) -> Iterator[Target]:
    """The bitcoin operator forms a network of real daemons in 15 s, costs nothing while nothing changes, and starts with many."""
    yield Target("three real daemons, full mesh", "s", run.formed_s, 15.0, "15")
    yield Target("the same, CPU of the operator", "ms", run.formed_cpu_ms, 60.0, "60")
    yield Target("50 nodes that do not change", "% of a core", 100 * run.steady_share, 0.1, "0.1")
    yield Target("the same, writes and requests", "", run.steady_writes + run.steady_requests, 0.0, "0")
    yield Target("start with 200 networks, CPU", "s", run.start_cpu_s, 3.0, "3")
    yield Target("the same, resident", "MiB", run.resident_mib, 60.0, "60")


def ingress(run: IngressRun) -> Iterator[Target]:
    """The ingress controller with 1,000 Ingresses of 10 paths; a change without a reload where NGINX has Lua."""
    yield Target(f"{run.mode}: model and configuration at start, CPU", "s", run.start_cpu_s, 0.5, "0.5")
    yield Target(f"{run.mode}: change of an endpoint, CPU", "ms", run.endpoint_cpu_ms, 5.0, "5")
    yield Target(f"{run.mode}: change of an Ingress, CPU", "ms", run.ingress_cpu_ms, 60.0, "60")
    yield Target(f"{run.mode}: endpoint to traffic, median", "ms", run.endpoint_ms, 300.0, "300")
    yield Target(f"{run.mode}: Ingress to traffic, median", "ms", run.ingress_ms, 300.0, "300")
    yield Target(f"{run.mode}: reloads in a burst of 1,000 changes", "", run.burst_reloads, 3.0, "3")
    yield Target(f"{run.mode}: resident", "MiB", run.resident_mib, 120.0, "120")
    yield Target(f"{run.mode}: time of a request beside a hand-written configuration", "x", run.request_ratio, 1.05, "1.05")
    if run.mode == "Lua":
        yield Target("Lua: reloads for changes of endpoints", "", run.endpoint_reloads, 0.0, "0")


def _beside(ours: Server, theirs: Server, description: str, workers: int, share: float, field: str, suffix: str = "") -> Iterator[Target]:
    mine, other = ours.load(description, workers), theirs.load(description, workers)
    if mine is None or other is None:
        return
    of, its = (getattr(each, field) if field == "p50_ms" else 1e3 / each.per_second for each in (mine, other))
    many = f"{workers} watchers" if "watcher" in description else f"{workers} workers" if workers > 1 else ""
    yield Target(", ".join(part for part in (description + suffix, many) if part), "ms", of, share * its, f"{share:g} x {its:.3g}")
