"""Audit events of whole requests. The expected events are those of a kube-apiserver for the same requests under the same policy."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeloop.apiserver.audit.log import AuditLog
from kubeloop.apiserver.audit.policy import AuditPolicy
from kubeloop.apiserver.filters import Auditing, OperationOptions
from kubeloop.timing import SystemClock
from tests.apiserver.conftest import CONFIGMAPS, JSON_PATCH, MERGE, PROTOBUF, TABLE, TOKENS, Api, running_api

ALL = "rules: [{level: None, userGroups: ['system:authenticated'], users: ['system:apiserver']}, {level: RequestResponse}]"
ADMIN = {"username": "admin", "uid": "admin-uid", "groups": ["system:masters", "system:authenticated"]}
ALICE = {"username": "alice", "uid": "alice-uid", "groups": ["devs", "system:authenticated"]}
MAPS = {"resource": "configmaps", "namespace": "default", "apiVersion": "v1"}
SECRETS = "/api/v1/namespaces/default/secrets"
ALLOWED = {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""}


class Audited:
    """A server that logs, and what it has logged when it has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.events: list[dict[str, Any]] = []

    @asynccontextmanager
    async def __call__(self, rules: str = ALL) -> AsyncIterator[Api]:
        policy = self._path / "policy.yaml"
        policy.write_text(f"apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}\n")
        log = self._path / "audit.log"
        auditing = Auditing(AuditPolicy.read(policy), AuditLog(log, SystemClock()))
        async with running_api(operation=OperationOptions(auditing=auditing)) as api:
            yield api
        self.events = [json.loads(line) for line in log.read_text().splitlines()]

    @property
    def stages(self) -> list[str]:
        return [event["stage"] for event in self.events]

    @property
    def last(self) -> dict[str, Any]:
        return self.events[-1]


@pytest.fixture
def audited(tmp_path: Path) -> Audited:
    return Audited(tmp_path)


async def test_a_creation_is_logged_when_it_arrives_and_when_it_is_done(audited: Audited) -> None:
    async with audited() as api:
        made = await api("POST", CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}, Audit_Id="mine", User_Agent="test/1")
    assert made.headers["Audit-Id"] == "mine"
    common = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": "mine",
        "requestURI": CONFIGMAPS,
        "verb": "create",
        "user": ADMIN,
        "sourceIPs": ["127.0.0.1"],
        "userAgent": "test/1",
    }
    received, complete = audited.events
    came = received["requestReceivedTimestamp"]
    assert received == {
        **common,
        "stage": "RequestReceived",
        "objectRef": MAPS,
        "requestReceivedTimestamp": came,
        "stageTimestamp": came,
    }
    assert complete == {
        **common,
        "stage": "ResponseComplete",
        "objectRef": {**MAPS, "name": "a"},
        "responseStatus": {"metadata": {}, "code": 201},
        "requestObject": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}},
        "responseObject": made.body,
        "requestReceivedTimestamp": came,
        "stageTimestamp": complete["stageTimestamp"],
        "annotations": ALLOWED,
    }
    assert list(received)[:6] == ["kind", "apiVersion", "level", "auditID", "stage", "requestURI"]


async def test_a_watch_is_logged_when_it_begins_too(audited: Audited) -> None:
    async with audited() as api, api.watch(f"{CONFIGMAPS}?watch=1&timeoutSeconds=1") as events:
        async for _ in events:
            pass
    assert audited.stages == ["RequestReceived", "ResponseStarted", "ResponseComplete"]
    assert [event.get("responseStatus") for event in audited.events] == [None, *[{"metadata": {}, "code": 200}] * 2]
    assert audited.last["requestURI"] == f"{CONFIGMAPS}?watch=1&timeoutSeconds=1"


async def test_a_watch_whose_client_goes_is_over_then(audited: Audited) -> None:
    async with audited() as api, api.watch(f"{CONFIGMAPS}?watch=1") as events:
        await api.create("a")
        async for _ in events:
            break
    assert audited.stages.count("ResponseComplete") == 2


async def test_a_refusal_is_shown_with_its_status(audited: Audited) -> None:
    async with audited() as api:
        refused = await api("GET", CONFIGMAPS, token="alice-token")
    status = refused.body
    assert audited.last["responseObject"] == status
    assert audited.last["responseStatus"] == {name: status[name] for name in status if name not in ("kind", "apiVersion")}
    assert audited.last["annotations"] == {"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": ""}
    assert audited.last["user"] == ALICE


async def test_an_unauthenticated_request_is_logged_once_without_a_name(audited: Audited) -> None:
    async with audited() as api:
        assert (await api("GET", CONFIGMAPS, token="wrong")).status == 401
    (event,) = audited.events
    assert (event["stage"], event["user"], event["objectRef"]) == ("ResponseStarted", {}, MAPS)
    assert event["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }
    assert "wrong" not in json.dumps(event)


async def test_both_users_of_an_impersonation_are_shown(audited: Audited) -> None:
    async with audited() as api:
        await api("GET", CONFIGMAPS, Impersonate_User="bob", Impersonate_Extra_x="y")
    assert audited.last["user"] == ADMIN
    assert audited.last["impersonatedUser"] == {"username": "bob", "groups": ["system:authenticated"], "extra": {"x": ["y"]}}
    assert "impersonatedUser" not in audited.events[0]


async def test_a_deletion_shows_its_options_and_the_answer(audited: Audited) -> None:
    async with audited() as api:
        await api.create("a")
        await api("DELETE", f"{CONFIGMAPS}/a", {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
    assert audited.last["requestObject"] == {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    status = audited.last["responseStatus"]
    assert (status["status"], status["code"], status["details"]["kind"]) == ("Success", 200, "configmaps")


async def test_a_patch_is_shown_as_it_came(audited: Audited) -> None:
    async with audited() as api:
        await api.create("a")
        await api("PATCH", f"{CONFIGMAPS}/a", {"data": {"k": "v"}}, content=MERGE)
    assert audited.last["requestObject"] == {"data": {"k": "v"}}
    assert audited.last["responseObject"]["data"] == {"k": "v"}


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        pytest.param(TABLE, "Table", id="a Table as a Table"),
        pytest.param("application/yaml", "ConfigMapList", id="YAML as JSON"),
        pytest.param(PROTOBUF, "ConfigMapList", id="protobuf as JSON"),
    ],
)
async def test_answers_in_other_forms_are_shown_in_json(audited: Audited, accept: str, kind: str) -> None:
    headers = {"Authorization": "Bearer admin-token", "Accept": accept}
    async with audited() as api, api.session.get(CONFIGMAPS, headers=headers) as answer:
        assert answer.status == 200
        await answer.read()
    assert audited.last["responseObject"]["kind"] == kind


async def test_the_level_says_how_much_is_shown(audited: Audited) -> None:
    rules = (
        "omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n"
        "- {level: Metadata, verbs: [create]}\n- {level: Request, verbs: [update]}\n- {level: RequestResponse, verbs: [get]}\n"
    )
    async with audited(rules) as api:
        await api.create("a")
        await api("PUT", f"{CONFIGMAPS}/a", {"metadata": {"name": "a"}, "data": {"k": "v"}})
        await api("GET", f"{CONFIGMAPS}/a")
        await api("DELETE", f"{CONFIGMAPS}/a")
    shown = [(event["level"], "requestObject" in event, "responseObject" in event) for event in audited.events]
    assert shown == [("Metadata", False, False), ("Request", True, False), ("RequestResponse", False, True)]
    assert "managedFields" not in audited.last["responseObject"]["metadata"]
    assert audited.events[0]["objectRef"]["name"] == "a"


async def test_no_data_of_secrets_and_no_token_comes_into_the_log(audited: Audited) -> None:
    async with audited() as api:
        await api("POST", SECRETS, {"metadata": {"name": "a"}, "stringData": {"password": "hunter2"}})
        await api("PATCH", f"{SECRETS}/a", {"stringData": {"password": "hunter2"}}, content=MERGE)
        await api("PATCH", f"{SECRETS}/a", [{"op": "add", "path": "/data/l", "value": "aHVudGVyMg=="}], content=JSON_PATCH)
        await api("GET", SECRETS)
        await api("GET", f"{SECRETS}?includeObject=Object", accept=TABLE)
        await api("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "alice-token"}})
    text = json.dumps(audited.events)
    assert "<redacted>" in text
    assert not [secret for secret in ("hunter2", "aHVudGVyMg", *TOKENS) if secret in text]


async def test_paths_that_are_no_resources_are_logged_without_an_object(audited: Audited) -> None:
    async with audited() as api:
        await api("GET", "/version", token="", X_Forwarded_For="192.0.2.1, nobody, 192.0.2.2")
    assert "objectRef" not in audited.last
    assert "responseObject" not in audited.last
    assert audited.last["user"] == {"username": "system:anonymous", "groups": ["system:unauthenticated"]}
    assert audited.last["sourceIPs"] == ["192.0.2.1", "192.0.2.2", "127.0.0.1"]


async def test_every_answer_has_an_id(api: Api) -> None:
    ids = {(await api("GET", path)).headers["Audit-Id"] for path in ("/version", "/nosuch", CONFIGMAPS)}
    assert len(ids) == 3
    assert {len(one) for one in ids} == {36}
