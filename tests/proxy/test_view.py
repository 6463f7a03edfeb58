"""What a client sees of an object: the rules of its request, and selectors that only the proxy can evaluate."""

from __future__ import annotations

import logging
from urllib.parse import parse_qs

import pytest

from kubeloop.meta.errors import ApiError
from kubeloop.proxy.rules import Examination, HeadMetadata
from kubeloop.types import JSONObject
from tests.proxy.rules.rule_texts import rule
from tests.proxy.samples import pod, view_of

HIDE_BACK = rule(match=[{"labelSelector": "tier=back"}], name="hide")
RELABEL = rule({"set": {"metadata.labels.tier": "none"}}, name="relabel")
MOVE = rule({"set": {"spec.nodeName": "hidden"}}, name="move")
PYTHON = rule({"python": {"callable": "tests.proxy.hiding:hide_back"}}, name="python")


@pytest.mark.parametrize(
    ("rules", "query", "sent"),
    [
        pytest.param(
            (HIDE_BACK,),
            "labelSelector=tier%3Dfront&limit=5",
            {"labelSelector": ["tier=front"], "limit": ["5"]},
            id="labels that no rule changes are selected by the server",
        ),
        pytest.param(
            (RELABEL,), "labelSelector=tier%3Dfront&limit=5", {"limit": ["5"]}, id="labels that a rule changes are selected by the proxy"
        ),
        pytest.param((PYTHON,), "labelSelector=tier%3Dfront", {}, id="labels that Python may change are selected by the proxy"),
        pytest.param((MOVE,), "fieldSelector=spec.nodeName%3Da", {}, id="a field that a rule changes is selected by the proxy"),
        pytest.param(
            (MOVE,),
            "fieldSelector=spec.nodeName%3Da%2Cstatus.phase%3DRunning",
            {"fieldSelector": ["status.phase=Running"]},
            id="other fields are selected by the server",
        ),
        pytest.param(
            (PYTHON,),
            "fieldSelector=metadata.name%3Da",
            {"fieldSelector": ["metadata.name=a"]},
            id="names that no rule can change are selected by the server",
        ),
        pytest.param((RELABEL,), "label%53elector=tier%3Dfront", {}, id="an escaped name of the parameter is the same parameter"),
        pytest.param(
            (RELABEL,), "labelSelector=tier%3Dfront&labelSelector=tier%3Dback", {}, id="a parameter that is sent twice is not sent once"
        ),
        pytest.param((RELABEL,), "", {}, id="no selector"),
    ],
)
def test_the_selectors_that_the_server_gets(rules: tuple[JSONObject, ...], query: str, sent: dict[str, list[str]]) -> None:
    assert parse_qs(view_of(*rules, query=query).query) == sent


@pytest.mark.parametrize(
    ("rules", "query", "seen"),
    [
        pytest.param((RELABEL,), "labelSelector=tier%3Dfront", False, id="an old label does not select"),
        pytest.param((RELABEL,), "labelSelector=tier%3Dnone", True, id="a new label selects"),
        pytest.param((RELABEL,), "labelSelector=tier!%3Dnone", False, id="a new label is excluded"),
        pytest.param((MOVE,), "fieldSelector=spec.nodeName%3Dnode-7", False, id="an old value does not select"),
        pytest.param((MOVE,), "fieldSelector=spec.nodeName%3Dhidden", True, id="a new value selects"),
        pytest.param((MOVE,), "fieldSelector=spec.nodeName!%3Dhidden", False, id="a new value is excluded"),
        pytest.param((rule({"remove": ["status.phase"]}),), "fieldSelector=status.phase%3D", True, id="a removed field is empty"),
        pytest.param(
            (rule({"set": {"spec.hostNetwork": True}}),), "fieldSelector=spec.hostNetwork%3Dtrue", True, id="a boolean is compared as text"
        ),
        pytest.param(
            (rule({"remove": ["spec.hostNetwork"]}),), "fieldSelector=spec.hostNetwork%3Dfalse", True, id="a missing boolean is false"
        ),
        pytest.param((MOVE, RELABEL), "fieldSelector=spec.nodeName%3Dhidden&labelSelector=tier%3Dfront", False, id="both must match"),
    ],
)
def test_a_selector_is_evaluated_on_what_the_client_sees(rules: tuple[JSONObject, ...], query: str, seen: bool) -> None:
    view = view_of(*rules, query=query)
    assert view.examine(HeadMetadata("web-0", "shop", {"tier": "front"})) is Examination.NEEDS_OBJECT
    assert (view.see(pod()).object is not None) is seen
    assert not view.is_constant


@pytest.mark.parametrize("query", ["labelSelector=a%3D%3D%3Db", "fieldSelector=a"])
def test_a_malformed_selector_that_the_proxy_evaluates_is_a_bad_request(query: str) -> None:
    with pytest.raises(ApiError) as raised:
        view_of(PYTHON, query=query)
    assert raised.value.status.code == 400


def test_rules_that_touched_objects_are_named_and_counted() -> None:
    view = view_of(HIDE_BACK, MOVE)
    view.see(pod())
    view.see(pod(tier="back"))
    view.count_hidden(HeadMetadata("x", "shop", {"tier": "back"}))
    assert list(view.touched) == ["move", "hide"]
    counters = view._counters
    assert (counters.hidden, counters.changed, counters.failed) == ({"hide": 2}, {"move": 1}, {})


def test_dry_run_logs_what_would_change_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubeloop.proxy.rules")
    view = view_of(HIDE_BACK, MOVE, dry_run=True)
    assert view.see(pod("a", "back")).object == pod("a", "back")
    assert view.see(pod("b")).object == pod("b")
    assert [record.message for record in caplog.records] == [
        "dry run: hide would hide Pod shop/a",
        "dry run: move would change Pod shop/b",
    ]


def test_dry_run_examines_hidden_objects_so_that_their_rule_is_logged() -> None:
    view = view_of(HIDE_BACK, dry_run=True)
    assert view.examine(HeadMetadata("a", "shop", {"tier": "back"})) is Examination.NEEDS_OBJECT
    assert view.examine(HeadMetadata("a", "shop", {})) is Examination.UNTOUCHED


async def test_a_failing_rule_is_counted_logged_and_names_nothing_of_the_object(caplog: pytest.LogCaptureFixture) -> None:
    view = view_of(rule({"jsonPatch": [{"op": "test", "path": "/spec/nodeName", "value": "other"}]}, name="fails"))
    with pytest.raises(ApiError) as raised:
        await view.see_async(pod(node="secret-node"))
    assert raised.value.status.code == 500
    assert "secret" not in str(raised.value)
    assert view._counters.failed == {"fails": 1}
    assert "rule fails failed for Pod shop/web-0" in caplog.text
