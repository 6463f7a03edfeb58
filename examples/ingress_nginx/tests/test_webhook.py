"""The validating webhook: a table of Ingresses in memory, and its declaration."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from examples.ingress_nginx.ingress.builder import BuilderOptions, IngressBuilder
from examples.ingress_nginx.tests.objects import ClusterTable, ingress, ingress_class
from examples.ingress_nginx.webhook import WEBHOOK_NAME, WEBHOOK_PATH, AdmissionReport, BuilderLookup, declared, hooks_of
from kubeloop.api.networking.v1 import Ingress
from kubeloop.controller.webhooks import Service

NGINX = "nginx.ingress.kubernetes.io"


def deleting(stored: Ingress) -> Ingress:
    stored.metadata.deletion_timestamp = datetime(2026, 1, 1, tzinfo=UTC)
    stored.metadata.finalizers = ["example.com/wait"]
    return stored


def with_uid(stored: Ingress, uid: str) -> Ingress:
    stored.metadata.uid = uid
    return stored


STORED = ClusterTable(
    ingress_class("other", "example.com/other"),
    ingress("old", "a.test /taken old:80", "* /all old:80"),
    ingress("canary", "a.test /canary old:80", canary="true", canary_weight="1"),
    ingress("foreign", "a.test /foreign old:80", ingress_class_name="other"),
)


@dataclass
class Decisions:
    """The webhook with the stored Ingresses, and its reports."""

    reports: list[AdmissionReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        builder = IngressBuilder(STORED)
        builder.rebuild()
        self.hooks = hooks_of(BuilderLookup(builder, STORED, BuilderOptions()), self.reports.append)


@pytest.fixture
def decisions() -> Decisions:
    return Decisions()


@pytest.mark.parametrize(
    ("written", "errors"),
    [
        pytest.param(ingress("web", "a.test /new web:80"), {}, id="a new path of a known host is allowed"),
        pytest.param(
            ingress("web", "a.test /taken web:80"),
            {"spec.rules": 'host "a.test" and path "/taken" is already defined in ingress shop/old'},
            id="a host and path of another Ingress are refused",
        ),
        pytest.param(
            ingress("web", "A.TEST /taken/ web:80"),
            {"spec.rules": 'host "a.test" and path "/taken" is already defined in ingress shop/old'},
            id="case of the host and a trailing slash of a prefix make no other path",
        ),
        pytest.param(
            ingress("web", "* /all web:80"),
            {"spec.rules": 'host "_" and path "/all" is already defined in ingress shop/old'},
            id="rules without a host are compared too",
        ),
        pytest.param(ingress("web", "a.test =/taken web:80"), {}, id="an exact path beside the same prefix is allowed"),
        pytest.param(ingress("web", "b.test /taken web:80"), {}, id="the same path of another host is allowed"),
        pytest.param(
            ingress("web", "a.test /taken web:80", canary="true", canary_weight="9"), {}, id="a canary has the path of its main Ingress"
        ),
        pytest.param(
            ingress("web", "a.test /canary web:80", canary="true", canary_weight="9"),
            {"spec.rules": 'host "a.test" and path "/canary" is already defined in ingress shop/canary'},
            id="a second canary of a path is refused",
        ),
        pytest.param(ingress("web", "a.test /canary web:80"), {}, id="a canary does not define a path"),
        pytest.param(ingress("web", "a.test /foreign web:80"), {}, id="an Ingress of another class does not count"),
        pytest.param(ingress("old", "a.test /taken old:80"), {}, id="an Ingress does not conflict with its stored state"),
        pytest.param(
            ingress("web", "a.test /a(b) web:80"),
            {"spec.rules[0].http.paths[0].path": "it may contain letters, digits"},
            id="a prefix with other characters is refused",
        ),
        pytest.param(
            ingress("web", "a.test =/a%20b web:80"),
            {"spec.rules[0].http.paths[0].path": "with pathType Exact it may contain"},
            id="an exact path with other characters is refused",
        ),
        pytest.param(ingress("web", "a.test ~/a(b|c) web:80", use_regex="true"), {}, id="an expression may have them"),
        pytest.param(
            ingress("web", 'a.test ~/a";} web:80', use_regex="true"),
            {"spec": "spec.rules[0].http.paths[0].path"},
            id="an expression that could end a string of nginx.conf is refused",
        ),
        pytest.param(
            ingress("web", "a.test ~/a(b web:80", use_regex="true"),
            {"spec": "spec.rules[0].http.paths[0].path"},
            id="an expression that does not compile is refused",
        ),
        pytest.param(
            ingress("web", "a.test /new web:80", proxy_body_size="8q"),
            {f"metadata.annotations[{NGINX}/proxy-body-size]": ""},
            id="a problem of an annotation is refused under its name",
        ),
        pytest.param(
            with_uid(ingress("web", "a.test /new web:80"), "x;y"),
            {"metadata.uid": "metadata.uid is no UUID"},
            id="an invalid UID is refused",
        ),
        pytest.param(
            ingress("web", "a.test /taken web:80", ingress_class_name="other", proxy_body_size="8q"),
            {},
            id="an Ingress of another class is not checked",
        ),
        pytest.param(deleting(ingress("web", "a.test /taken web:80")), {}, id="an Ingress that is being deleted is not checked"),
    ],
)
async def test_a_created_ingress(decisions: Decisions, written: Ingress, errors: dict[str, str]) -> None:
    answer = await decisions.hooks.review(WEBHOOK_NAME, written)
    assert (answer.allowed, sorted(set(answer.fields))) == (not errors, sorted(errors)), answer.message
    assert [text for text in errors.values() if text not in answer.message] == [], answer.message


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        pytest.param(ingress("web", "a.test /taken web:80"), ingress("web", "a.test /taken api:80"), True, id="a conflict of old may stay"),
        pytest.param(ingress("web", "a.test /free web:80"), ingress("web", "a.test /taken web:80"), False, id="a new conflict is refused"),
        pytest.param(
            ingress("web", "a.test /taken web:80", canary="true", canary_weight="1"),
            ingress("web", "a.test /taken web:80"),
            False,
            id="a canary may not become a second main Ingress",
        ),
        pytest.param(
            ingress("web", "a.test /taken web:80", ingress_class_name="other"),
            ingress("web", "a.test /taken web:80"),
            False,
            id="an Ingress with a conflict may not change to this class",
        ),
    ],
)
async def test_an_updated_ingress(decisions: Decisions, old: Ingress, new: Ingress, allowed: bool) -> None:
    assert (await decisions.hooks.review(WEBHOOK_NAME, new, old=old, operation="UPDATE")).allowed == allowed


@pytest.mark.parametrize(
    ("written", "text"),
    [
        pytest.param(
            ingress("web", "a.test /new web:80", auth_type="basic", auth_secret="users"),
            "the Secret",
            id="a Secret that an annotation names may be created later",
        ),
        pytest.param(
            ingress("web", "a.test /new web:80", tls=["cert a.test"]),
            "spec.tls: secret shop/cert does not exist",
            id="a certificate may be created later",
        ),
        pytest.param(
            ingress("web", "a.test /new web:80", whitelist_source_range="10.0.0.0/8"), "", id="a deprecated annotation is a warning"
        ),
    ],
)
async def test_a_warning(decisions: Decisions, written: Ingress, text: str) -> None:
    answer = await decisions.hooks.review(WEBHOOK_NAME, written)
    assert answer.allowed, answer.message
    assert text in answer.warnings[0]


async def test_decisions_about_served_ingresses_are_reported(decisions: Decisions) -> None:
    for found in (ingress("a", "a.test /new web:80"), ingress("b", "a.test /taken web:80"), ingress("c", ingress_class_name="other")):
        await decisions.hooks.review(WEBHOOK_NAME, found)
    assert [(found.namespace, found.name, found.allowed) for found in decisions.reports] == [("shop", "a", True), ("shop", "b", False)]


def test_the_declaration_is_that_of_the_original() -> None:
    (configuration,) = declared.configurations("kubeloop-ingress", Service("ingress", "kubeloop-ingress-webhooks"))
    (hook,) = configuration.webhooks
    (rule,) = hook.rules
    assert hook.client_config.service is not None
    assert (hook.name, hook.failure_policy, hook.client_config.service.path) == (WEBHOOK_NAME, "Fail", WEBHOOK_PATH)
    assert (rule.api_groups, rule.api_versions, rule.resources) == (["networking.k8s.io"], ["v1"], ["ingresses"])
    assert rule.operations == ["CREATE", "UPDATE"]
