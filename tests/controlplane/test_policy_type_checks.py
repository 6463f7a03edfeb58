"""Type checks of admission policies: the types of schemas, the kinds that are checked, and the warnings in the status."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.api.admissionregistration.v1 import ValidatingAdmissionPolicy
from kubeloop.controlplane.policy.validating_policies import (
    MAX_KINDS,
    KindType,
    SchemaTypes,
    ValidatingPolicyStatusController,
    check_policy,
    kinds_to_check,
)
from kubeloop.meta import GroupVersionKind, GroupVersionResource
from kubeloop.testing.fake_time import UNSEEN
from tests.controlplane.kills import KillScenario, assert_survives_kills
from tests.controlplane.simulated import FakeTimeCluster, simulation

WIDGET = GroupVersionKind("example.com", "v1", "Widget")
COMPONENTS: dict[str, Any] = {
    "Widget": {
        "type": "object",
        "properties": {
            "metadata": {"allOf": [{"$ref": "#/components/schemas/Meta"}], "description": "the metadata"},
            "kind": {"type": "string"},
            "apiVersion": {"type": "string"},
            "size": {"type": "integer", "format": "int32"},
            "ratio": {"type": "number"},
            "on": {"type": "boolean"},
            "secret": {"type": "string", "format": "byte"},
            "since": {"type": "string", "format": "date-time"},
            "wait": {"type": "string", "format": "duration"},
            "port": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Part"}},
            "amount": {"oneOf": [{"type": "string"}, {"type": "number"}]},
            "bare": {"type": "object"},
            "a-b": {"type": "string"},
        },
    },
    "Meta": {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}, "uid": {"type": "string"}}},
    "Part": {"type": "object", "properties": {"name": {"type": "string"}, "inner": {"$ref": "#/components/schemas/Part"}}},
    "Plain": {"type": "object", "properties": {"size": {"type": "integer"}}},
}


def kind_type(name: str = "Widget", prefix: str = "object") -> KindType:
    found = SchemaTypes(COMPONENTS, prefix).kind_type({"$ref": f"#/components/schemas/{name}"})
    assert found is not None
    return found


def policy(expression: str, **spec: Any) -> ValidatingAdmissionPolicy:
    return ValidatingAdmissionPolicy.from_dict({"metadata": {"name": "p"}, "spec": {"validations": [{"expression": expression}], **spec}})


def warnings(expression: str, name: str = "Widget", **spec: Any) -> str:
    """Return the texts of the faults of an expression, without positions."""
    params = kind_type("Plain", "params") if "paramKind" in spec else None
    found = check_policy(policy(expression, **spec), [(WIDGET, kind_type(name))], params)
    return " ".join(line.partition(": ERROR: ")[2] or line for _, text in found for line in text.splitlines() if "ERROR" in line)


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("object.size + 1 > 2", ""),
        ("object.size > 'x'", "found no matching overload for '_>_' applied to '(int, string)'"),
        ("object.ratio > 1.5 && object.on", ""),
        ("object.secret == b'x' && object.since > timestamp('2020-01-01T00:00:00Z')", ""),
        ("object.wait > duration('1s')", ""),
        ("object.port == 1 || object.port == 'http'", ""),
        ("object.labels['a'].startsWith('x')", ""),
        ("object.labels['a'] > 1", "found no matching overload for '_>_' applied to '(string, int)'"),
        ("object.parts.all(one, one.name == 'x')", ""),
        ("object.parts[0].nme == 'x'", "undefined field 'nme'"),
        ("object.parts[0].inner.name == 'x'", "undefined field 'name'"),
        ("object.amount == 1", "undefined field 'amount'"),
        ("object.bare.x == 1", "undefined field 'x'"),
        ("object.a__dash__b == 'x'", ""),
        ("object.metadata.uid == 'x' && object.kind == 'Widget'", ""),
        ("oldObject.nothing == 1", "undefined field 'nothing'"),
    ],
)
def test_types_of_a_schema(expression: str, fault: str) -> None:
    assert warnings(expression).partition(": ")[2] == fault


def test_a_schema_without_metadata_gets_the_names() -> None:
    assert warnings("object.metadata.name == 'x' && object.kind == 'Plain' && object.size == 1", "Plain") == ""
    assert warnings("object.metadata.uid == 'x'", "Plain") == "<input>:1:16: undefined field 'uid'"


@pytest.mark.parametrize(
    ("expression", "variables", "fault"),
    [
        pytest.param("variables.a > 1", [("a", "object.size")], "", id="a variable of the right type"),
        pytest.param("variables.a == 'x'", [("a", "object.size")], "'_==_' applied to '(int, string)'", id="a variable of another type"),
        pytest.param("variables.a.b == 1", [("a", "object.nothing")], "", id="a variable with a fault may be anything"),
        pytest.param("variables.b.size == 'x'", [("a", "object"), ("b", "variables.a")], "", id="so may a variable that is an object"),
        pytest.param("variables.z == 1", [], "undefined field 'z'", id="a variable that is not there"),
    ],
)
def test_variables(expression: str, variables: list[tuple[str, str]], fault: str) -> None:
    listed = [{"name": name, "expression": text} for name, text in variables]
    found = warnings(expression, variables=listed)
    assert fault in found
    assert bool(found) is bool(fault)


def test_parameters_have_the_type_of_their_kind() -> None:
    kind = {"apiVersion": "example.com/v1", "kind": "Plain"}
    assert warnings("params.size > object.size", paramKind=kind) == ""
    assert warnings("params.nothing > object.size", paramKind=kind) == "<input>:1:7: undefined field 'nothing'"
    assert "undeclared reference to 'params'" in warnings("params.size > 1")


def test_message_expressions_are_checked_and_each_kind_has_its_warning() -> None:
    one = policy("object.x == 1")
    one.spec.validations[0].message_expression = "'x' + object.y"
    kinds = [(WIDGET, kind_type()), (GroupVersionKind("", "v1", "Plain"), kind_type("Plain"))]
    found = dict(check_policy(one, kinds, None))
    assert found.keys() == {"spec.validations[0].expression", "spec.validations[0].messageExpression"}
    mark = "<input>:1:7: undefined field 'x'\n | object.x == 1\n | ......^\n"
    assert found["spec.validations[0].expression"] == f"example.com/v1, Kind=Widget: ERROR: {mark}\n/v1, Kind=Plain: ERROR: {mark}"


SERVED = {
    GroupVersionResource("apps", "v1", "deployments"): GroupVersionKind("apps", "v1", "Deployment"),
    GroupVersionResource("", "v1", "pods"): GroupVersionKind("", "v1", "Pod"),
    GroupVersionResource("", "v1", "events"): GroupVersionKind("", "v1", "Event"),
    GroupVersionResource("events.k8s.io", "v1", "events"): GroupVersionKind("events.k8s.io", "v1", "Event"),
} | {GroupVersionResource("many", "v1", f"r{at:02}"): GroupVersionKind("many", "v1", f"K{at:02}") for at in range(20)}


@pytest.mark.parametrize(
    ("groups", "versions", "resources", "expected"),
    [
        pytest.param(["apps"], ["v1"], ["deployments"], ["apps/v1 Deployment"], id="a resource by name"),
        pytest.param(["apps"], ["v1"], ["deployments/scale", "*"], [], id="subresources and stars are no resources"),
        pytest.param(["*"], ["v1"], ["pods"], [], id="a star for all groups"),
        pytest.param(["apps"], ["*"], ["deployments"], [], id="a star for all versions"),
        pytest.param([""], ["v1"], ["events"], ["v1 Event", "events.k8s.io/v1 Event"], id="the empty group stands for any group"),
        pytest.param(["apps"], ["v1"], ["nothings"], [], id="a resource that is not served"),
        pytest.param(["many"], ["v1"], [f"r{at:02}" for at in range(20)], [f"many/v1 K{at:02}" for at in range(MAX_KINDS)], id="limit"),
    ],
)
def test_kinds_to_check(groups: list[str], versions: list[str], resources: list[str], expected: list[str]) -> None:
    rule = {"apiGroups": groups, "apiVersions": versions, "resources": resources, "operations": ["CREATE"]}
    found = kinds_to_check(policy("true", matchConstraints={"resourceRules": [rule]}), SERVED)
    assert [f"{kind.api_version} {kind.kind}" for kind in found] == expected


def match(*resources: str) -> dict[str, Any]:
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": list(resources), "operations": ["CREATE"]}
    return {"matchConstraints": {"resourceRules": [rule]}, "failurePolicy": "Fail"}


async def checked(cluster: FakeTimeCluster, name: str, generation: int) -> ValidatingAdmissionPolicy:
    """Return a policy once this generation is checked. Threads read the documents of schemas, and fake time does not wait for threads."""
    async with asyncio.timeout(30):
        while True:
            found = await cluster.client.get(ValidatingAdmissionPolicy, name)
            if found.status.observed_generation == generation:
                return found
            await asyncio.sleep(UNSEEN)


async def write_policies(cluster: FakeTimeCluster) -> None:
    for name, expression in (("a", "object.spec.foo == 1"), ("b", "object.spec.parallelism == 1")):
        one = policy(expression, **match("jobs"))
        one.metadata.name = name
        await cluster.client.create(one)
        await checked(cluster, name, 1)


async def test_each_generation_is_checked_once() -> None:
    async with simulation(ValidatingPolicyStatusController()) as cluster:
        await write_policies(cluster)
        found = await cluster.client.get(ValidatingAdmissionPolicy, "a")
        assert found.status.type_checking is not None
        (warning,) = found.status.type_checking.expression_warnings
        assert warning.warning == (
            "batch/v1, Kind=Job: ERROR: <input>:1:12: undefined field 'foo'\n | object.spec.foo == 1\n | ...........^\n"
        )
        cluster.faults.calls.clear()
        await cluster.client.patch(ValidatingAdmissionPolicy, "a", {"metadata": {"labels": {"a": "b"}}})
        await cluster.pass_time(5)
        assert [call.verb for call in cluster.faults.writes] == ["patch"], "only the test's own write"
        await cluster.client.patch(ValidatingAdmissionPolicy, "a", {"spec": {"validations": [{"expression": "true"}]}})
        done = await checked(cluster, "a", 2)
        assert done.status.type_checking is None, "the last warning takes the empty list along, as on a real server"


async def test_survives_a_kill_after_any_write() -> None:
    scenario = KillScenario(lambda: [ValidatingPolicyStatusController()], write_policies, [ValidatingAdmissionPolicy], settle=1)
    assert await assert_survives_kills(scenario)
