"""``spec.match``: which requests and objects a rule is for."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.proxy.rules import Examination, HeadMetadata
from kubeloop.types import JSONObject
from tests.proxy.rules.rule_texts import pod, request, rule, rules_of


@pytest.mark.parametrize(
    ("entry", "parts", "expected"),
    [
        pytest.param({}, {}, True, id="an entry without fields matches everything"),
        pytest.param({"groups": [""]}, {}, True, id="the empty group is the core group"),
        pytest.param({"groups": ["apps"]}, {}, False, id="another group does not match"),
        pytest.param({"groups": ["*"]}, {"group": "apps"}, True, id="a star is any group"),
        pytest.param({"versions": ["v1"]}, {"version": "v1"}, True, id="the same version matches"),
        pytest.param({"versions": ["v1"]}, {"version": "v1beta1"}, False, id="another version does not match"),
        pytest.param({"resources": ["pods"]}, {}, True, id="the same resource matches"),
        pytest.param({"resources": ["pods"]}, {"resource": "nodes"}, False, id="another resource does not match"),
        pytest.param({"resources": ["pods"]}, {"subresource": "status"}, True, id="a resource includes its status"),
        pytest.param({"resources": ["pods"]}, {"subresource": "log"}, False, id="a resource excludes its logs"),
        pytest.param({"resources": ["pods/log"]}, {"subresource": "log"}, True, id="a subresource is named after a slash"),
        pytest.param({"resources": ["pods/log"]}, {}, False, id="a subresource excludes its resource"),
        pytest.param({"resources": ["pods/*"]}, {"subresource": "log"}, True, id="a star after the slash is any subresource"),
        pytest.param({"resources": ["pods/*"]}, {}, False, id="a star after the slash excludes the resource"),
        pytest.param({"resources": ["*/status"]}, {"subresource": "status"}, True, id="a star before the slash is any resource"),
        pytest.param({"resources": ["*/status"]}, {"subresource": "scale"}, False, id="a subresource of any resource excludes others"),
        pytest.param({"resources": ["*"]}, {}, True, id="a star is any resource"),
        pytest.param({"resources": ["*"]}, {"subresource": "scale"}, False, id="a star excludes subresources of another kind"),
        pytest.param({"resources": ["*/*"]}, {"subresource": "scale"}, True, id="two stars are any resource and subresource"),
        pytest.param({"resources": ["*/*"]}, {}, True, id="two stars include the resource itself"),
        pytest.param(
            {"groups": ["events.k8s.io"], "resources": ["events"]}, {"resource": "events"}, True, id="events are the same in the core group"
        ),
        pytest.param(
            {"groups": [""], "resources": ["events"]},
            {"resource": "events", "group": "events.k8s.io"},
            True,
            id="events are the same in their own group",
        ),
        pytest.param(
            {"groups": ["apps"], "resources": ["events"]}, {"resource": "events"}, False, id="events of another group do not match"
        ),
        pytest.param({"groups": ["events.k8s.io"]}, {"resource": "pods"}, False, id="only events are in both groups"),
        pytest.param({"verbs": ["get", "list"]}, {}, True, id="one of the verbs matches"),
        pytest.param({"verbs": ["list"]}, {}, False, id="another verb does not match"),
        pytest.param({"verbs": ["*"]}, {"verb": "deletecollection"}, True, id="a star is any verb"),
        pytest.param({"users": ["ann"]}, {}, True, id="the same user matches"),
        pytest.param({"users": ["Ann"]}, {}, False, id="names are in the same case"),
        pytest.param(
            {"users": ["system:serviceaccount:shop:*"]}, {"user": "system:serviceaccount:shop:web"}, True, id="a pattern matches users"
        ),
        pytest.param({"userGroups": ["devs", "ops"]}, {"groups": ("a", "ops")}, True, id="one of the groups matches"),
        pytest.param({"userGroups": ["devs"]}, {"groups": ("a", "ops")}, False, id="no group matches"),
        pytest.param({"userGroups": ["*"]}, {}, False, id="a user without groups is in none"),
        pytest.param({"userAgents": ["kubectl/*"]}, {}, True, id="a pattern matches user agents"),
        pytest.param({"userAgents": ["helm*"]}, {}, False, id="another user agent does not match"),
        pytest.param({"namespaces": ["shop"]}, {}, True, id="the namespace of the request matches"),
        pytest.param({"namespaces": ["team-*"]}, {}, False, id="another namespace does not match"),
        pytest.param(
            {"namespaces": ["team-*"]},
            {"namespace": "", "verb": "list", "name": ""},
            True,
            id="a list of all namespaces leaves it to the objects",
        ),
        pytest.param({"names": ["web-?"]}, {}, True, id="the name of the request matches"),
        pytest.param({"names": ["db-*"]}, {}, False, id="another name does not match"),
        pytest.param({"names": ["db-*"]}, {"verb": "list"}, True, id="the name in a list comes from a selector and decides nothing"),
        pytest.param({"names": ["db-*"]}, {"verb": "watch"}, True, id="the name in a watch comes from a selector and decides nothing"),
        pytest.param({"resources": ["pods"], "verbs": ["list"]}, {}, False, id="every field of an entry must match"),
    ],
)
def test_a_request_selects_a_rule(entry: JSONObject, parts: dict[str, Any], expected: bool) -> None:
    found = rules_of(rule(match=[entry])).select(request(**parts))
    assert (found is not None) is expected


EVERY_POD: dict[str, Any] = {"namespace": "", "name": "", "verb": "list"}


@pytest.mark.parametrize(
    ("match", "parts", "tree", "hidden"),
    [
        pytest.param([{"labelSelector": "tier=back"}], {}, pod(), True, id="a label matches"),
        pytest.param([{"labelSelector": "tier in (back, front)"}], {}, pod(), True, id="one of two values matches"),
        pytest.param([{"labelSelector": "tier=front"}], {}, pod(), False, id="another value does not match"),
        pytest.param([{"labelSelector": "tier=back,app"}], {}, pod(), False, id="every requirement must hold"),
        pytest.param([{"labelSelector": "tier!=front"}], {}, pod(), True, id="a value other than the excluded one matches"),
        pytest.param([{"labelSelector": "!app"}], {}, {"metadata": {"name": "x"}}, True, id="an object without labels lacks a label"),
        pytest.param([{"labelSelector": ""}], {}, {"metadata": {"name": "x"}}, True, id="an empty selector matches everything"),
        pytest.param([{"namespaces": ["team-*"]}], EVERY_POD, pod(namespace="team-a"), True, id="a namespace of the list matches"),
        pytest.param([{"namespaces": ["team-*"]}], EVERY_POD, pod(namespace="shop"), False, id="another namespace of the list does not"),
        pytest.param([{"namespaces": [""]}], EVERY_POD, {"metadata": {"name": "n"}}, True, id="a cluster-scoped object has no namespace"),
        pytest.param([{"names": ["web-[01]", "db"]}], EVERY_POD, pod("web-1"), True, id="a pattern of names matches"),
        pytest.param([{"names": ["web-[01]", "db"]}], EVERY_POD, pod("db"), True, id="a name beside a pattern matches"),
        pytest.param([{"names": ["web-[01]", "db"]}], EVERY_POD, pod("web-10"), False, id="a pattern matches the whole name"),
        pytest.param([{"names": ["a"]}, {"names": ["web-0"]}], EVERY_POD, pod(), True, id="any entry may match"),
        pytest.param([{"names": ["a"]}, {}], EVERY_POD, pod(), True, id="an entry for everything makes the others irrelevant"),
        pytest.param([{"names": ["web-0"], "labelSelector": "tier=front"}], EVERY_POD, pod(), False, id="name and label must match"),
        pytest.param(
            [{"namespaces": ["shop"]}],
            {"resource": "namespaces", "namespace": "shop", "name": "shop"},
            {"metadata": {"name": "shop"}},
            True,
            id="a Namespace is in itself",
        ),
        pytest.param(
            [{"namespaces": ["shop"]}],
            {"resource": "namespaces", "namespace": "", "name": "", "verb": "list"},
            {"metadata": {"name": "a"}},
            False,
            id="a Namespace is not in another",
        ),
        pytest.param(
            [{"namespaces": [""]}],
            {"resource": "namespaces", "namespace": "shop", "name": "shop"},
            {"metadata": {"name": "shop"}},
            True,
            id="a Namespace is cluster-scoped too",
        ),
        pytest.param(
            [{"namespaces": ["a"]}],
            {"resource": "nodes", "namespace": "", "name": "a"},
            {"metadata": {"name": "a"}},
            False,
            id="the name of a Node is no namespace",
        ),
    ],
)
def test_an_object_matches_a_rule(match: list[JSONObject], parts: dict[str, Any], tree: JSONObject, hidden: bool) -> None:
    selection = rules_of(rule(match=match)).select(request(**parts))
    assert selection is not None
    metadata = tree["metadata"]
    head = HeadMetadata(metadata["name"], metadata.get("namespace", ""), metadata.get("labels"))
    assert (selection.rewrite(tree).object is None) is hidden
    assert selection.examine(head) is (Examination.HIDDEN if hidden else Examination.UNTOUCHED)
