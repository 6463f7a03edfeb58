"""Accepted names of a definition, and the conditions about them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubeloop.apiserver.crd.definition import CLEANUP_FINALIZER, condition, is_true
from kubeloop.apiserver.crd.naming import NamesInUse, approval, names_in_use, update_names
from kubeloop.apiserver.crd.strategies import DefinitionStrategy
from kubeloop.timing import FakeClock
from tests.apiserver.write_requests import write_request

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def definition(plural: str = "objs", kind: str = "Obj", group: str = "kl.example.com", **names: Any) -> dict[str, Any]:
    wanted = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List", **names}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "uid": plural},
        "spec": {"group": group, "names": wanted, "scope": "Namespaced", "versions": [version], "conversion": {"strategy": "None"}},
        "status": {"acceptedNames": {"plural": "", "kind": ""}, "conditions": None, "storedVersions": ["v1"]},
    }


def settled(crd: dict[str, Any], *established: dict[str, Any]) -> dict[str, Any]:
    after = update_names(crd, names_in_use(established), NOW)
    assert after is not None
    return after


def test_free_names_are_accepted_and_the_definition_is_established() -> None:
    after = settled(definition(shortNames=["ob"], categories=["all"]))
    assert after["status"]["acceptedNames"] == after["spec"]["names"]
    assert is_true(after, "NamesAccepted")
    assert condition(after, "Established") == {
        "type": "Established",
        "status": "True",
        "reason": "InitialNamesAccepted",
        "message": "the initial names have been accepted",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }


def test_nothing_changes_once_names_are_settled() -> None:
    assert update_names(settled(definition()), NamesInUse(), NOW) is None


def test_names_that_another_definition_of_the_group_holds_are_refused_one_by_one() -> None:
    holder = settled(definition())
    after = settled(definition(plural="others"), holder)
    assert after["status"]["acceptedNames"] == {"plural": "others", "kind": ""}
    refused = condition(after, "NamesAccepted")
    assert refused is not None
    assert (refused["reason"], refused["message"]) == ("ListKindConflict", '"ObjList" is already in use')
    assert not is_true(after, "Established")


def test_short_names_in_use_are_all_named() -> None:
    holder = settled(definition(shortNames=["a", "b"]))
    after = settled(definition(plural="others", kind="Other", shortNames=["a", "b", "c"]), holder)
    refused = condition(after, "NamesAccepted")
    assert refused is not None
    assert (refused["reason"], refused["message"]) == ("ShortNamesConflict", '["a" is already in use, "b" is already in use]')


def test_an_established_definition_stays_established_when_new_names_are_refused() -> None:
    holder = settled(definition(plural="others", kind="Other", shortNames=["x"]))
    mine = settled(definition())
    mine["spec"]["names"]["shortNames"] = ["x"]
    after = settled(mine, holder)
    assert is_true(after, "Established")
    assert not is_true(after, "NamesAccepted")
    assert "shortNames" not in after["status"]["acceptedNames"]


def test_a_name_that_is_no_longer_wanted_is_given_back() -> None:
    mine = settled(definition(shortNames=["x"], categories=["all"]))
    del mine["spec"]["names"]["shortNames"], mine["spec"]["names"]["categories"]
    assert settled(mine)["status"]["acceptedNames"] == mine["spec"]["names"]


def test_groups_of_the_community_say_whether_they_are_approved() -> None:
    crd = definition(group="x.k8s.io")
    crd["metadata"]["annotations"] = {"api-approved.kubernetes.io": "https://example.com/1"}
    assert is_true(settled(crd), "KubernetesAPIApprovalPolicyConformant")


def test_an_approval_is_a_url_or_says_that_there_is_none() -> None:
    texts = ("", "unapproved, a test", "https://example.com/1", "yes")
    assert [approval(text)[0] for text in texts] == ["missing", "bypassed", "approved", "invalid"]


def test_deletion_begins_with_a_finalizer_and_a_condition() -> None:
    crd = definition()
    DefinitionStrategy(FakeClock()).begin_deletion(crd)
    assert crd["metadata"]["finalizers"] == [CLEANUP_FINALIZER]
    assert crd["metadata"]["deletionTimestamp"]
    assert is_true(crd, "Terminating")


def test_a_conversion_webhook_is_accepted() -> None:
    crd = definition()
    client = {"url": "https://example.com/convert"}
    crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}
    assert DefinitionStrategy(FakeClock()).validate_create(write_request(), crd) == []


def test_a_cel_rule_that_names_no_field_is_refused() -> None:
    crd = definition()
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = [{"rule": "self.nowhere > 1"}]
    (fault,) = DefinitionStrategy(FakeClock()).validate_create(write_request(), crd)
    assert fault.field.endswith("openAPIV3Schema.x-kubernetes-validations[0].rule")
    assert "undefined field 'nowhere'" in fault.detail
