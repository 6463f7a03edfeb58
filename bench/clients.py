"""The measured clients, and the command of each."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from bench import prepare
from bench.prepare import BUILD, LIGHTKUBE, OFFICIAL


@dataclass(frozen=True)
class Peer:
    """A client: the command that runs it; ``{server}``, ``{count}``, ``{last_rv}`` and ``{get}`` are filled in.

    ``needs``: what of ``prepare`` must have succeeded.
    """

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    needs: str = "go"


_ARGUMENTS = ("--server", "{server}", "--count", "{count}", "--last-rv", "{last_rv}")
_OURS = (sys.executable, "-m", "bench.peers.kubeloop_client", *_ARGUMENTS)
_GO = (str(BUILD / "clientgo"), "-server", "{server}", "-count", "{count}", "-last-rv", "{last_rv}")
# A list costs client-go half of what the streamed list costs it, its default since 1.35: it is judged by the better one.
_LIST = (("KUBE_FEATURE_WatchListClient", "false"),)
_RUST = (str(prepare.KUBE_RS), *_ARGUMENTS)

KUBELOOP = Peer("kubeloop", _OURS)
KUBELOOP_WHOLE = Peer("kubeloop, managedFields kept", (*_OURS, "--keep-managed-fields"))
KUBELOOP_READING = Peer("kubeloop, handler reads old and new", (*_OURS, "--read"))
KUBELOOP_PAGES = Peer("kubeloop, pages of 500", (*_OURS, "--page", "500"))
KUBELOOP_QUERIES = Peer("kubeloop, queries and restart", (sys.executable, "-m", "bench.peers.kubeloop_reading", *_ARGUMENTS))
CLIENT_GO_PROTOBUF = Peer("client-go protobuf", (*_GO, "-content", "protobuf"), _LIST)
CLIENT_GO_PROTOBUF_STRIPPED = Peer("client-go protobuf, stripped", (*_GO, "-content", "protobuf", "-strip"), _LIST)
CLIENT_GO_JSON = Peer("client-go JSON", _GO, _LIST)
CLIENT_GO_JSON_STRIPPED = Peer("client-go JSON, stripped", (*_GO, "-strip"), _LIST)
KUBE_RS = Peer("kube-rs", _RUST, needs="kube-rs")
KUBE_RS_STRIPPED = Peer("kube-rs, stripped", (*_RUST, "--strip", "yes"), needs="kube-rs")
LIGHTKUBE_DICT = Peer("lightkube (into a dict)", (str(LIGHTKUBE), "-m", "bench.peers.lightkube_client", *_ARGUMENTS), needs="lightkube")
OFFICIAL_INFORMER = Peer("official client", (str(OFFICIAL), "-m", "bench.peers.official_client", *_ARGUMENTS), needs="official")

_GET = ("--server", "{server}", "--get", "{get}")
STARTERS = (
    Peer("kubeloop", (sys.executable, "-m", "bench.peers.kubeloop_client", *_GET)),
    Peer("lightkube", (str(LIGHTKUBE), "-m", "bench.peers.lightkube_client", *_GET), needs="lightkube"),
)


@dataclass(frozen=True)
class Stage:
    """Peers that run against the same pods, in interleaved rounds. ``copies`` of ``packed`` pods are served."""

    name: str
    packed: int
    copies: int
    events: int
    rounds: int
    peers: tuple[Peer, ...]
    tls: bool = False

    @property
    def pods(self) -> int:
        return self.packed * self.copies


EVERYBODY = (
    KUBELOOP,
    KUBELOOP_READING,
    CLIENT_GO_PROTOBUF,
    CLIENT_GO_PROTOBUF_STRIPPED,
    CLIENT_GO_JSON,
    CLIENT_GO_JSON_STRIPPED,
    KUBE_RS,
    KUBE_RS_STRIPPED,
    LIGHTKUBE_DICT,
)
STAGES = (
    Stage("10k", 10_000, 1, 20_000, 3, EVERYBODY),
    Stage("10k-tls", 10_000, 1, 20_000, 2, (KUBELOOP, CLIENT_GO_PROTOBUF, CLIENT_GO_JSON, KUBE_RS_STRIPPED, LIGHTKUBE_DICT), tls=True),
    Stage("2k", 2_000, 1, 1_000, 1, (KUBELOOP, OFFICIAL_INFORMER)),
    Stage(
        "50k",
        50_000,
        1,
        5_000,
        2,
        (
            KUBELOOP,
            KUBELOOP_PAGES,
            KUBELOOP_WHOLE,
            CLIENT_GO_PROTOBUF,
            CLIENT_GO_PROTOBUF_STRIPPED,
            CLIENT_GO_JSON,
            KUBE_RS_STRIPPED,
            LIGHTKUBE_DICT,
        ),
    ),
    Stage("200k", 50_000, 4, 5_000, 1, (KUBELOOP, CLIENT_GO_PROTOBUF_STRIPPED, KUBE_RS_STRIPPED)),
    Stage("100k", 50_000, 2, 5_000, 1, (KUBELOOP_QUERIES,)),
)
MILLION = (
    Stage("10k", 10_000, 1, 20_000, 5, (KUBELOOP,)),
    Stage("1m", 50_000, 20, 20_000, 3, (KUBELOOP_PAGES,)),
)
