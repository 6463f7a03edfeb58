"""The benchmark of queues: its verdicts, and kubeloop's program at a small size. No time is asserted."""

from __future__ import annotations

import json
import subprocess

from bench.prepare import HERE
from bench.queues import GO, KINDS, KUBELOOP, ORDERS, judge, programs


def test_a_queue_is_judged_against_its_peer_and_by_itself() -> None:
    ours = {"work queue, keys, each": 0.6, "work queue with metrics, keys, each": 0.9, "priority queue, keys, all": 1.5}
    go = {"work queue, keys, each": 0.13, "priority queue, keys, all": 2.4}
    found = [(target.what, target.met, target.goal_met) for target in judge({KUBELOOP: ours, GO: go})]
    assert found == [
        ("priority queue, keys, all", True, None),
        ("work queue, keys, each", True, False),
        ("work queue, keys, each", False, None),
        ("work queue with metrics, keys, each", None, True),
        ("priority queue, keys, all", True, None),
    ]


def test_what_was_not_measured_is_not_judged() -> None:
    assert list(judge({})) == []


def test_kubeloops_program_measures_every_queue_in_both_orders() -> None:
    command = [*programs()[KUBELOOP], "-count", "20", "-rounds", "1"]
    run = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in run.stdout.splitlines()]
    phases = {each["phase"] for each in found}
    for queue in ("work queue", "priority queue", "work queue with metrics", "priority queue with metrics"):
        assert {f"{queue}, {kind}, {order}" for kind in KINDS for order in ORDERS} <= phases
    assert {each["objects"] for each in found} == {20}
