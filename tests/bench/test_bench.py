"""The benchmark's arithmetic, and its pods: the same on every machine, and what a server would send."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from bench.goals import Figures, Goal, figures, informer_goals, start_goal
from bench.pods.cluster import Cluster
from kubeloop.api.core.v1 import Pod
from kubeloop.codec import decode, encode


def run(listed: float, event: float, floor: int) -> dict[str, dict[str, float]]:
    return {
        "start": {"rss_kib": 1000},
        "sync": {"objects": 100, "cpu_s": listed, "rss_kib": 1500},
        "events": {"objects": 200, "cpu_s": event},
        "hold": {"rss_kib": floor, "hwm_kib": 2048},
    }


def test_figures_are_medians_per_object_above_the_process_own_memory() -> None:
    found = figures([run(0.001, 0.002, 1300), run(0.003, 0.004, 1200), run(0.002, 0.1, 1400)])
    assert found == Figures(listed_us=20, event_us=20, sync_kib=5, floor_kib=3, peak_mib=2)


def test_goals_are_shares_of_each_peer() -> None:
    ours, theirs = Figures(40, 20, 4, 2, 80), Figures(202, 127, 32, 32.8, 419)
    goals = informer_goals({"kubeloop": ours, "lightkube": theirs, "client-go protobuf": Figures(48, 19, 24, 26, 365)}, "HTTP")
    assert [(goal.peer, goal.share, goal.reached) for goal in goals] == [
        ("lightkube", 1 / 4, True),
        ("lightkube", 1 / 3, True),
        ("lightkube", 1 / 12, True),
        ("client-go protobuf", 1, False),
    ]
    assert start_goal({"kubeloop": 0.1, "lightkube": 0.2}) == [
        Goal("CPU from process start to the first typed Pod", 100, 200, "lightkube", 1)
    ]
    assert informer_goals({"lightkube": theirs}, "HTTP") == []


def test_the_same_seed_gives_the_same_pods_and_events() -> None:
    cluster = Cluster(5, 40)
    data = msgspec.json.encode([[cluster.pod(number), cluster.event(number, 1, 912_345_679)] for number in range(40)])
    assert hashlib.sha256(data).hexdigest() == "b62753fa30ec68ed21a12b42766b1468546601fad6b1d7686805d4bf2ab660c4"


@pytest.mark.parametrize("number", range(0, 40, 8))
def test_a_generated_pod_is_read_and_written_without_loss(number: int) -> None:
    pod = Cluster(5, 40).pod(number)
    document = msgspec.json.encode(pod)
    assert msgspec.json.decode(encode(decode(Pod, document))) == pod
