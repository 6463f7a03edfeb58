"""The benchmark's arithmetic, and its pods: the same on every machine, and what a server would send."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import msgspec
import pytest

from bench import clients, targets
from bench.figures import InformerFigures, Queries, figures, queries
from bench.pods.cluster import Cluster
from bench.targets import Target
from kubeloop.api.core.v1 import Pod
from kubeloop.codec import decode, encode

OURS = InformerFigures(10_000, 40, 12, 4, 2, 80, 90, 100, 5)
THEIRS = replace(OURS, event_us=20, listed_us=48)


def run(listed: float, event: float, floor: int, stall: float = 0) -> dict[str, dict[str, float]]:
    return {
        "start": {"rss_kib": 1000},
        "sync": {"objects": 100, "cpu_s": listed, "rss_kib": 1500, "hwm_kib": 2048, "longest_stall_ms": stall},
        "events": {"objects": 200, "cpu_s": event},
        "hold": {"rss_kib": floor, "hwm_kib": 4096},
    }


def reading(get: float, stall: float) -> dict[str, dict[str, float]]:
    return {
        "get": {"objects": 10, "cpu_s": get},
        "select": {"objects": 3, "cpu_s": 0.2, "longest_stall_ms": stall},
        "restart": {"objects": 100, "cpu_s": 0.5},
    }


def test_figures_are_medians_per_object_above_the_process_own_memory() -> None:
    found = figures([run(0.001, 0.002, 1300, 7), run(0.003, 0.004, 1200), run(0.002, 0.1, 1400)])
    assert found == InformerFigures(
        pods=100,
        listed_us=20,
        event_us=20,
        sync_kib=5,
        floor_kib=3,
        settled_mib=1500 / 1024,
        peak_mib=2,
        highest_mib=4,
        stall_ms=7,
    )


def test_what_a_client_packs_after_its_sync_belongs_to_its_list() -> None:
    settled = {"cpu_s": 0.005, "rss_kib": 1024.0, "hwm_kib": 3072.0, "longest_stall_ms": 9.0}
    found = figures([run(0.001, 0.002, 1300) | {"settled": settled}])
    assert (found.listed_us, found.settled_mib, found.peak_mib, found.stall_ms) == (50, 1, 3, 9)
    assert found.sync_kib == 5


def test_queries_are_medians_and_the_longest_stall_of_all_runs() -> None:
    found = queries([reading(0.0001, 3), reading(0.0002, 30), reading(0.0009, 5)])
    assert replace(found, get_us=20) == Queries(get_us=20, select_s=0.2, selected=3, stall_ms=30, restart_s=0.5, restarted=100)
    assert found.get_us == pytest.approx(20)


def test_targets_are_shares_of_each_peer_and_judged() -> None:
    found = targets.informers({"10k": {"kubeloop": OURS, "client-go protobuf": THEIRS, "client-go JSON": replace(THEIRS, event_us=127)}})
    assert [(target.against, target.limit, target.met) for target in found] == [
        ("0.6 x 20 of client-go protobuf", 12, True),
        ("0.1 x 127 of client-go JSON", pytest.approx(12.7), True),
        ("0.35 of kube-rs, stripped, which is not measured", None, None),
        ("the goal alone", None, None),
    ]
    slow = {"10k": {"kubeloop": replace(OURS, event_us=12.5), "client-go protobuf": THEIRS}}
    assert next(targets.informers(slow)).met is False


def test_every_peer_that_was_not_measured_is_named() -> None:
    ours = dict.fromkeys((clients.KUBELOOP.name, clients.KUBELOOP_READING.name, clients.KUBELOOP_WHOLE.name), OURS)
    found = [target for target in targets.informers(dict.fromkeys(("10k", "10k-tls", "50k"), ours)) if "not measured" in target.against]
    assert {target.against.partition(" of ")[2].removesuffix(", which is not measured") for target in found} == {
        "client-go protobuf",
        "client-go protobuf, stripped",
        "client-go JSON",
        "kube-rs",
        "kube-rs, stripped",
    }
    assert [target.met for target in found] == [None] * len(found)


def test_what_kubeloop_did_not_run_is_no_target() -> None:
    assert list(targets.informers({"10k": {"client-go protobuf": THEIRS}})) == []
    assert list(targets.million({})) == []
    assert list(targets.starts({"lightkube": 0.2})) == []


def test_a_goal_is_judged_beside_the_limit() -> None:
    events = [target for target in targets.informers({"10k": {"kubeloop": OURS}}) if target.goal is not None]
    assert [(target.ours, target.goal, target.goal_met) for target in events] == [(12, 15, True)]
    restart = list(targets.reading(Queries(get_us=20, select_s=0.5, selected=3, stall_ms=30, restart_s=0.5, restarted=100)))[-1]
    assert (restart.limit, restart.met, restart.goal, restart.goal_met) == (1, True, 0.3, False)


def test_the_peak_of_a_sync_may_be_a_fixed_room_above_what_stays() -> None:
    found = [target for target in targets.informers({"50k": {"kubeloop": OURS}}) if target.what.startswith("peak")]
    assert found == [Target("peak of the sync, 50k, kubeloop", "MiB", 90, 144, "final 80 + 64")]


def test_a_start_is_judged_against_lightkube_s() -> None:
    assert list(targets.starts({"kubeloop": 0.1, "lightkube": 0.2})) == [
        Target("process start to the first typed Pod, CPU", "ms", 100, 200, "1 x 200 of lightkube")
    ]


def test_an_event_among_a_million_may_cost_a_fifth_more_than_among_ten_thousand() -> None:
    pages = replace(OURS, event_us=15, highest_mib=2000)
    found = list(targets.million({"1m": {clients.KUBELOOP_PAGES.name: pages}, "10k": {"kubeloop": OURS}}))
    assert [(target.ours, target.limit, target.met) for target in found] == [(2000, 2560, True), (15, pytest.approx(14.4), False)]


def test_the_same_seed_gives_the_same_pods_and_events() -> None:
    cluster = Cluster(5, 40)
    data = msgspec.json.encode([[cluster.pod(number), cluster.event(number, 1, 912_345_679)] for number in range(40)])
    assert hashlib.sha256(data).hexdigest() == "b62753fa30ec68ed21a12b42766b1468546601fad6b1d7686805d4bf2ab660c4"


@pytest.mark.parametrize("number", range(0, 40, 8))
def test_a_generated_pod_is_read_and_written_without_loss(number: int) -> None:
    pod = Cluster(5, 40).pod(number)
    document = msgspec.json.encode(pod)
    assert msgspec.json.decode(encode(decode(Pod, document))) == pod
