"""``kubeloop doctor``: what it finds on a server, what it says then, and how it ends."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kubeloop.api.admissionregistration.v1 import ValidatingWebhookConfiguration
from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.cli.doctor.command import doctor
from kubeloop.cli.doctor.connection import Missing, manifest, skew
from kubeloop.cli.doctor.definitions import definitions, schema_differences, version_differences
from kubeloop.client import Client
from kubeloop.codec.yaml import read_yaml, write_yaml
from kubeloop.codegen.crd import definitions_of
from kubeloop.config import Kubeconfig
from kubeloop.controller.permissions import Permission
from kubeloop.meta import ApiError, Forbidden, NotFound, ServiceUnavailable, Unstructured
from kubeloop.testing import HandlerServer
from tests.cli.doctor.program import GROUP, Gadget
from tests.servers import ServerUnderTest

APP = "tests.cli.doctor.program:controllers"
CRD = f"gadgets.{GROUP}"


def run(kubeconfig: Path, *arguments: str) -> Result:
    return CliRunner().invoke(doctor, [*arguments, "--kubeconfig", str(kubeconfig)], env={"COLUMNS": "200"})


def found(result: Result) -> dict[str, tuple[str, str]]:
    """State and text by subject."""
    return {one["subject"]: (one["state"], one["said"]) for one in json.loads(result.stdout)["findings"]}


def definition() -> dict[str, Any]:
    (one,) = definitions_of([Gadget])
    return copy.deepcopy(one.document)


@pytest.fixture
def kubeconfig(server: ServerUnderTest) -> Iterator[Path]:
    """Of a server that does not have the program's kind, before the test and after."""
    asyncio.run(_without_kind(server))
    yield server.kubeconfig
    asyncio.run(_without_kind(server))


async def _without_kind(server: ServerUnderTest) -> None:
    async with Client.from_config(server.kubeconfig) as client:
        try:
            await client.delete(CustomResourceDefinition, CRD)
        except NotFound:
            return
        await client.wait_gone(CustomResourceDefinition, CRD, timeout=60)


def install(kubeconfig: Path, document: dict[str, Any]) -> None:
    async def work() -> None:
        async with Client.from_config(kubeconfig) as client:
            await client.create(Unstructured.from_dict(document))
            await client.wait_ready(CustomResourceDefinition, CRD, timeout=30)

            async def served() -> bool:
                try:
                    answer = await client.transport.request("GET", f"/apis/{GROUP}/v1")
                except ApiError:
                    return False
                return b'"gadgets"' in answer.body

            # A real server publishes a moment after the definition is established.
            async with asyncio.timeout(30):
                while not await served():
                    await asyncio.sleep(0.05)

    asyncio.run(work())


@pytest.mark.server
def test_a_program_that_has_all_it_needs_is_well(kubeconfig: Path) -> None:
    install(kubeconfig, definition())
    result = run(kubeconfig, APP, "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["ok"] is True
    facts = found(result)
    assert facts[f"Gadget ({GROUP}/v1)"] == ("ok", "served, and its schema is that of the class")
    assert facts[f"gadgets.{GROUP}/status"] == ("ok", "get, patch, update")
    assert facts["Secret (v1)"] == ("ok", "served")
    assert facts["leases.coordination.k8s.io"][0] == "ok"
    assert facts["server"][1].startswith("v1.")
    assert facts["skew"][0] in ("ok", "unknown")


@pytest.mark.server
def test_a_kind_that_is_not_installed_fails_with_the_way_out(kubeconfig: Path) -> None:
    result = run(kubeconfig, APP)
    assert result.exit_code == 1
    assert "not served" in result.output
    assert "apply the definition that belongs to this program: kubeloop generate crd" in " ".join(result.output.split())
    assert "1 failed" in result.output


@pytest.mark.parametrize(
    ("error", "state", "message"),
    [
        pytest.param(Forbidden, "unknown", "the server does not report whether it serves it: Forbidden: ", id="who may not ask"),
        pytest.param(ServiceUnavailable, "unknown", "the server does not report whether it serves it: ", id="a server behind it is down"),
        pytest.param(NotFound, "failed", "not served: NotFound: ", id="nothing is there"),
    ],
)
async def test_what_the_server_does_not_say_is_unknown(error: type[ApiError], state: str, message: str) -> None:
    async with HandlerServer() as server:
        client = server.client()
        server.faults.refuse(error, times=100, matching=lambda request: request.path == f"/apis/{GROUP}/v1")
        (finding,) = await definitions(client, [Gadget])
    assert (finding.state, finding.said.startswith(message)) == (state, True), finding


@pytest.mark.server
def test_80_columns_are_enough_where_no_terminal_is_and_no_word_is_broken(kubeconfig: Path) -> None:
    result = CliRunner().invoke(doctor, [APP, "--kubeconfig", str(kubeconfig)])
    assert [line for line in result.output.splitlines() if f"gadgets.{GROUP}/finalizers" in line]
    # A name may be longer than a line: it is alone there.
    assert [line for line in result.output.splitlines() if len(line) > 80 and len(line.split()) > 3] == []
    assert result.output.isascii(), "no box that grep and other encodings stumble over"


@pytest.mark.server
def test_a_schema_that_differs_is_compared_field_by_field(kubeconfig: Path) -> None:
    document = definition()
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["colour"]
    schema["properties"]["spec"]["properties"]["size"]["maximum"] = 5
    install(kubeconfig, document)
    result = run(kubeconfig, APP, "-o", "json")
    assert result.exit_code == 1
    assert found(result)[f"Gadget ({GROUP}/v1)"] == (
        "failed",
        "spec.colour: not at the server, which drops it; spec.size: maximum is 5 at the server, None in the class",
    )


@pytest.mark.server
def test_a_webhook_without_anybody_behind_it_fails(kubeconfig: Path) -> None:
    install(kubeconfig, definition())
    hook = {
        "name": "gadgets.doctor.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {"name": "absent", "namespace": "default"}},
        "rules": [{"apiGroups": [GROUP], "apiVersions": ["*"], "resources": ["gadgets"], "operations": ["CREATE"]}],
    }
    webhooks = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "kubeloop-doctor-test"},
        "webhooks": [hook],
    }

    async def put(there: bool) -> None:
        async with Client.from_config(kubeconfig) as client:
            if there:
                await client.create(Unstructured.from_dict(webhooks))
            else:
                await client.delete(ValidatingWebhookConfiguration, "kubeloop-doctor-test")

    asyncio.run(put(True))
    try:
        result = run(kubeconfig, APP, "-o", "json")
    finally:
        asyncio.run(put(False))
    assert result.exit_code == 1
    said = 'Service "absent" in namespace "default" has no ready endpoint'
    assert found(result)["gadgets.doctor.example.com"] == ("failed", said)


@pytest.mark.server
def test_a_conversion_without_anybody_behind_it_fails(kubeconfig: Path) -> None:
    document = definition()
    where = {"service": {"name": "absent", "namespace": "default"}}
    document["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": where}}
    install(kubeconfig, document)
    result = run(kubeconfig, APP, "-o", "json")
    assert result.exit_code == 1
    assert found(result)[f"conversion of {CRD}"][0] == "failed"


@pytest.mark.server
def test_without_a_program_the_connection_is_looked_at(kubeconfig: Path) -> None:
    result = run(kubeconfig)
    assert result.exit_code == 0, result.output
    assert "permission" not in result.output


@pytest.mark.embedded
def test_a_server_that_cannot_be_reached_fails_and_nothing_else_is_asked(tmp_path: Path) -> None:
    cluster = {"name": "gone", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "gone", "context": {"cluster": "gone", "user": "me"}}
    tree = {"apiVersion": "v1", "kind": "Config", "current-context": "gone", "clusters": [cluster], "contexts": [context]}
    file = tmp_path / "kubeconfig"
    file.write_text(write_yaml({**tree, "users": [{"name": "me", "user": {}}]}))
    result = run(file, APP, "-o", "json")
    assert result.exit_code == 1
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["check"], finding["state"]) == ("connection", "failed")
    assert "kubeloop config explain" in finding["fix"]


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["nowhere:x"], "no module nowhere", id="a program that is not there"),
        pytest.param(["--fix"], "--fix is about the permissions of a program", id="fix without a program"),
    ],
)
def test_what_cannot_be_asked_is_said(kubeconfig: Path, arguments: list[str], words: str) -> None:
    result = run(kubeconfig, *arguments)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert words in result.output


@pytest.mark.server
def test_missing_permissions_are_named_and_the_roles_that_are_printed_grant_them(kubeconfig: Path, tmp_path: Path) -> None:
    """SelfSubjectAccessReview for another user, whom the administrator impersonates."""
    install(kubeconfig, definition())
    tree = Kubeconfig.read(kubeconfig).view(flatten=True, raw=True)
    for user in tree["users"]:
        user["user"]["as"] = "kubeloop-doctor-other"
    other = tmp_path / "kubeconfig"
    other.write_text(write_yaml(tree))
    result = run(other, APP, "-n", "default", "-o", "json")
    assert result.exit_code == 1
    facts = found(result)
    said = 'may not create, delete, get, list, patch, update, watch in namespace "default" (for gadgets)'
    assert facts["secrets"] == ("failed", said)
    assert facts["leases.coordination.k8s.io"][0] == "failed"
    assert facts[f"Gadget ({GROUP}/v1)"][0] == "unknown"
    roles = [Unstructured.from_dict(one) for one in read_yaml(run(other, APP, "-n", "default", "--fix").stdout)]
    # Applied over the role that the program has, they would take away what that grants.
    assert [(one["kind"], one.metadata.name) for one in roles] == [("Role", "tests-missing"), ("RoleBinding", "tests-missing")]

    async def put(there: bool) -> None:
        async with Client.from_config(kubeconfig, None) as client:
            for role in roles:
                if there:
                    await client.create(role)
                else:
                    await client.delete(type(role), role.metadata.name, namespace="default")

    asyncio.run(put(True))
    try:
        again = run(other, APP, "-n", "default", "-o", "json")
    finally:
        asyncio.run(put(False))
    assert {state for subject, (state, _) in found(again).items() if "." in subject or subject == "secrets"} <= {"ok", "unknown"}
    assert again.exit_code == 0


def test_roles_are_granted_where_the_permission_is_missing() -> None:
    missing = [
        Missing(Permission("", "nodes", ("get",), namespaced=False)),
        Missing(Permission("", "secrets", ("create",)), "shop"),
        Missing(Permission("coordination.k8s.io", "leases", ("get",)), "ops"),
    ]
    roles = manifest(missing, "web", "system:serviceaccount:ops:web")
    assert [(one["kind"], one["metadata"].get("namespace", "")) for one in roles] == [
        ("ClusterRole", ""),
        ("ClusterRoleBinding", ""),
        ("Role", "ops"),
        ("RoleBinding", "ops"),
        ("Role", "shop"),
        ("RoleBinding", "shop"),
    ]
    assert roles[1]["subjects"] == [{"kind": "ServiceAccount", "namespace": "ops", "name": "web"}]
    assert manifest(missing[:1], "web", "eve")[1]["subjects"][0]["kind"] == "User"


BEFORE = datetime(2026, 1, 1, 12, 0, 0, 400_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("date", "state", "message"),
    [
        pytest.param("Thu, 01 Jan 2026 12:00:00 GMT", "ok", "the clocks agree", id="the same second"),
        pytest.param("Thu, 01 Jan 2026 11:59:58 GMT", "ok", "the clocks agree", id="within what a whole second can tell"),
        pytest.param("Thu, 01 Jan 2026 12:00:31 GMT", "warning", "30 s ahead of this machine's", id="half a minute ahead"),
        pytest.param("Thu, 01 Jan 2026 11:00:00 GMT", "failed", "3599 s behind this machine's", id="an hour behind"),
        pytest.param("tomorrow", "unknown", "cannot be read: tomorrow", id="no date"),
        pytest.param("", "unknown", "have no Date", id="none at all"),
    ],
)
def test_clocks(date: str, state: str, message: str) -> None:
    finding = skew({"Date": date} if date else {}, BEFORE, BEFORE + timedelta(milliseconds=300))
    assert finding.state == state
    assert message in finding.said


def props(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


DIFFERENCES = [
    pytest.param(props(a={"type": "string"}), props(a={"type": "string", "description": "x"}), [], id="descriptions say nothing"),
    pytest.param(
        props(a={"type": "string"}), props(), [("a: not at the server, which drops it", True)], id="a field of the class is dropped"
    ),
    pytest.param(props(), props(a={"type": "string"}), [("a: not in the class", False)], id="a field that the class does not know is kept"),
    pytest.param(
        props(), {**props(a={"type": "string"}), "required": ["a"]},
        [("a: not in the class", True), ("it: required is ['a'] at the server, None in the class", False)],
        id="unless it must be there",
    ),
    pytest.param(
        props(a={"type": "integer"}), props(a={"type": "string"}), [("a: string at the server, integer in the class", True)], id="a type"
    ),
    pytest.param(
        props(a={"type": "array", "items": props(b={"type": "string", "enum": ["x", "y"]})}),
        props(a={"type": "array", "items": props(b={"type": "string", "enum": ["y", "x"]})}),
        [],
        id="the order of choices does not matter, in lists neither",
    ),
    pytest.param(
        props(a={"type": "object", "additionalProperties": {"type": "string"}}),
        props(a={"type": "object", "additionalProperties": {"type": "integer"}}),
        [("a[]: integer at the server, string in the class", True)],
        id="values of a map",
    ),
    pytest.param(
        props(a=props(b={})), props(a={"type": "object", "x-kubernetes-preserve-unknown-fields": True}), [], id="an open schema accepts all"
    ),
    pytest.param(
        props(a={"type": "integer", "minimum": 0}), props(a={"type": "integer"}),
        [("a: minimum is None at the server, 0 in the class", False)],
        id="a bound of zero is a bound",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("mine", "there", "expected"), DIFFERENCES)
def test_schemas_are_compared(mine: dict[str, Any], there: dict[str, Any], expected: list[tuple[str, bool]]) -> None:
    assert list(schema_differences(mine, there)) == expected


def test_a_status_that_cannot_be_written_is_a_failure() -> None:
    (version,) = definition()["spec"]["versions"]
    other = {**version, "subresources": {}}
    assert list(version_differences(version, other)) == [("no subresource status at the server", True)]
