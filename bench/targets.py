"""What must be reached: each target as a figure of kubeloop's, a limit (mostly a share of a peer's figure), and a goal beyond it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench import clients
from bench.clients import Peer
from bench.figures import Figures, Queries

Found = Mapping[str, Mapping[str, Figures]]
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
    def __init__(self, found: Found) -> None:
        self._found = found

    def ours(self, stage: str, field: str, peer: Peer = clients.KUBELOOP) -> float | None:
        figures = self._found.get(stage, {}).get(peer.name)
        value: float | None = None if figures is None else getattr(figures, field)
        return value

    def share(self, what: str, unit: str, ours: float | None, share: float, stage: str, field: str, peer: Peer) -> Iterator[Target]:
        theirs = self.ours(stage, field, peer)
        if ours is not None:
            told = f"{share:g} x {theirs:.4g} of {peer.name}" if theirs is not None else f"{share:g} of {peer.name}, which is not measured"
            yield Target(what, unit, ours, None if theirs is None else share * theirs, told)

    def limit(
        self, what: str, unit: str, ours: float | None, limit: float, against: str = "", goal: float | None = None
    ) -> Iterator[Target]:
        if ours is not None:
            yield Target(what, unit, ours, limit, against, goal)


def informers(found: Found) -> Iterator[Target]:
    """Of the default stages."""
    judge = _Judge(found)
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


def reading(found: Queries) -> Iterator[Target]:
    yield Target("typed read by key, decode included", "us", found.get_us, 40, "")
    yield Target(f"list {found.selected:,} of 100,000 by label, CPU", "s", found.select_s, 0.3, "")
    yield Target(f"list {found.selected:,} of 100,000 by label, longest stall", "ms", found.stall_ms, 20, "")
    yield Target(f"restart from disk, {found.restarted:,} objects, CPU", "s", found.restart_s, 1, "", 0.3)


def million(found: Found) -> Iterator[Target]:
    judge = _Judge(found)
    yield from judge.limit(
        "1,000,000 pods: resident at most", "MiB", judge.ours("1m", "highest_mib", clients.KUBELOOP_PAGES), 2560, "", 1536
    )
    event = judge.ours("1m", "event_us", clients.KUBELOOP_PAGES)
    yield from judge.share("watch event at 1,000,000", "us", event, 1.2, "10k", "event_us", clients.KUBELOOP)


def starts(found: Mapping[str, float]) -> Iterator[Target]:
    ours, theirs = found.get("kubeloop"), found.get("lightkube")
    if ours is not None and theirs is not None:
        yield Target("process start to the first typed Pod, CPU", "ms", ours * 1e3, theirs * 1e3, f"1 x {theirs * 1e3:.0f} of lightkube")
