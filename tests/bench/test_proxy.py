"""The benchmark of the proxy: its verdicts, its rules, and the script for mitmproxy that does the same. No time is asserted."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from bench import proxy
from bench.peers.proxies import mitmproxy_rules
from bench.proxies import KUBECTL, KUBELOOP, MITMPROXY, RELAY
from bench.proxy import DIRECT, GET, HIDE_SOME, LATENCY, LIST, LIST_SET, PEAK, SET, WATCH, WATCH_HIDDEN, Sizes, judge
from kubeloop.endpoints.access import User
from kubeloop.proxy.rules import RewriteContext, RuleSet

OURS: dict[str, float] = {GET: 150, LATENCY: 1400, LIST: 4, LIST_SET: 60, WATCH: 16, WATCH_HIDDEN: 15, PEAK: 64}
PODS: list[dict[str, Any]] = [
    {"kind": "Pod", "metadata": {"name": "a", "labels": {"team": "x"}, "managedFields": []}, "spec": {"nodeName": "n"}},
    {"kind": "Pod", "metadata": {"name": "b"}, "spec": {"nodeName": "n"}},
]


def test_each_figure_is_judged_against_its_peer_or_by_itself() -> None:
    found = [
        (target.what, target.limit, target.met)
        for target in judge({DIRECT: {LATENCY: 400}, KUBELOOP: OURS, KUBECTL: {GET: 100}, MITMPROXY: {LIST: 50}, RELAY: {WATCH: 12}})
    ]
    assert found == [
        (GET, 150, True),
        (GET, None, None),
        ("get, extra latency, median", 1.0, True),
        (LIST, 3, False),
        (LIST, 5, True),
        (LIST, None, None),
        (LIST_SET, 60, True),
        (LIST_SET, None, None),
        (WATCH, 15, False),
        (WATCH, 18, True),
        (WATCH_HIDDEN, 15, True),
        ("list of many, peak above idle", 64, True),
    ]


def test_what_was_not_measured_is_not_judged() -> None:
    assert list(judge({KUBECTL: {GET: 100}})) == []


def test_a_smoke_run_is_small() -> None:
    assert Sizes().smaller(1) == Sizes()
    assert Sizes().smaller(100) == Sizes(pods=100, events=100, copies=2, requests=40, lists=1, rounds=1, watchers=20)


@pytest.mark.parametrize("rule", [HIDE_SOME, SET])
def test_mitmproxy_s_script_has_the_effect_of_kubeloop_s_rule(rule: proxy.BenchRule, monkeypatch: pytest.MonkeyPatch) -> None:
    context = RewriteContext(User("ann", ()), "list", "", "v1", "pods", "", "", "", "")
    selection = RuleSet.parse(rule.manifest()).select(context)
    assert selection is not None
    expected = [tree for pod in PODS if (tree := selection.rewrite(pod).object) is not None]
    monkeypatch.setattr(mitmproxy_rules, "_RULE", rule.effect)
    body = json.dumps({"metadata": {"remainingItemCount": 7}, "items": PODS})
    request = SimpleNamespace(query={}, path="/api/v1/pods")
    flow = SimpleNamespace(request=request, response=SimpleNamespace(status_code=200, stream=False, content=body))
    mitmproxy_rules.responseheaders(flow)
    mitmproxy_rules.response(flow)
    assert json.loads(flow.response.content) == {"metadata": {}, "items": expected}


def test_mitmproxy_s_script_rewrites_events_wherever_chunks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mitmproxy_rules, "_RULE", HIDE_SOME.effect)
    flow = SimpleNamespace(request=SimpleNamespace(query={"watch": "1"}), response=SimpleNamespace(status_code=200, stream=False))
    mitmproxy_rules.responseheaders(flow)
    frames = b"".join(json.dumps({"type": "ADDED", "object": pod}, separators=(",", ":")).encode() + b"\n" for pod in PODS)
    sent = [part for at in range(0, len(frames), 50) for part in flow.response.stream(frames[at : at + 50])]
    assert all(sent)
    assert b"".join(sent) == frames.partition(b"\n")[2]
