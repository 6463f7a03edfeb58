"""A server that knows more than the models: what they do not know survives every request that changes something else."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.codec import to_dict
from kubeloop.declare import ListMap
from kubeloop.meta import Model, ObjectMeta, Resource, Unstructured, custom_resource
from kubeloop.testing import HandlerServer
from kubeloop.transport import Transport
from tests.codec.random_edits import Edit, Plant, document
from tests.faults import FaultServer, Received, Reply

# StatefulSets as an old program knows them: a few fields of each struct. No controller of any server under test writes to these.


class OldContainer(Model):
    name: str = ""
    image: str = ""


class OldToleration(Model):
    key: str = ""
    effect: str = ""


class OldPodSpec(Model):
    containers: Annotated[list[OldContainer], ListMap("name")] = msgspec.field(default_factory=list)
    tolerations: list[OldToleration] = msgspec.field(default_factory=list)


class OldTemplate(Model):
    spec: OldPodSpec = msgspec.field(default_factory=OldPodSpec)


class OldSpec(Model):
    replicas: int | None = None
    template: OldTemplate = msgspec.field(default_factory=OldTemplate)


@custom_resource("apps/v1", plural="statefulsets", kind="StatefulSet")
class OldStatefulSet(Resource):
    """What a program of years ago knew."""

    spec: OldSpec = msgspec.field(default_factory=OldSpec)


def container(name: str, port: int) -> dict[str, Any]:
    return {
        "name": name,
        "image": f"{name}:1",
        "ports": [{"containerPort": port, "name": "http"}],
        "env": [{"name": "PORT", "value": str(port)}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "10m"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 7},
    }


STATEFUL_SET = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {
        "replicas": 2,
        "minReadySeconds": 3,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [container("web", 80), container("sidecar", 81), container("metrics", 82)],
                "tolerations": [
                    {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
                    {"key": "b", "operator": "Equal", "value": "x", "effect": "NoSchedule"},
                ],
                "nodeSelector": {"disk": "ssd"},
            },
        },
    },
}
Web = Unstructured.for_kind("apps/v1", "StatefulSet")


def pods(tree: dict[str, Any]) -> Any:
    return tree["spec"]["template"]["spec"]


def scale(old: OldStatefulSet, tree: dict[str, Any]) -> None:
    old.spec.replicas = tree["spec"]["replicas"] = 5


def image(old: OldStatefulSet, tree: dict[str, Any]) -> None:
    old.spec.template.spec.containers[1].image = pods(tree)["containers"][1]["image"] = "sidecar:2"


def reorder(old: OldStatefulSet, tree: dict[str, Any]) -> None:
    old.spec.template.spec.containers.reverse()
    pods(tree)["containers"].reverse()
    old.spec.template.spec.tolerations.reverse()
    pods(tree)["tolerations"].reverse()


def remove(old: OldStatefulSet, tree: dict[str, Any]) -> None:
    del old.spec.template.spec.containers[0], pods(tree)["containers"][0]
    del old.spec.template.spec.tolerations[0], pods(tree)["tolerations"][0]


def move_and_change(old: OldStatefulSet, tree: dict[str, Any]) -> None:
    for items in (old.spec.template.spec.containers, pods(tree)["containers"]):
        items.append(items.pop(0))
    old.spec.template.spec.containers[-1].image = pods(tree)["containers"][-1]["image"] = "web:2"


def label(old: OldStatefulSet, tree: dict[str, Any]) -> None:
    old.metadata.labels["tier"] = tree["metadata"]["labels"]["tier"] = "front"


EDITS = [scale, image, reorder, remove, move_and_change, label]


def comparable(tree: dict[str, Any]) -> dict[str, Any]:
    """Without what every write changes."""
    metadata = {key: value for key, value in tree["metadata"].items() if key not in ("resourceVersion", "generation", "managedFields")}
    return {**tree, "metadata": metadata, "status": None}


async def full(client: Client) -> dict[str, Any]:
    return to_dict(await client.get(Web, "web"))


@pytest.mark.server
@pytest.mark.parametrize("edit", EDITS, ids=[edit.__name__.replace("_", " ") for edit in EDITS])
@pytest.mark.parametrize("way", ["update", "patch"])
async def test_an_old_program_changes_what_it_knows_and_nothing_else(
    client: Client, edit: Callable[[OldStatefulSet, dict[str, Any]], None], way: str
) -> None:
    await client.create(Web.from_dict(STATEFUL_SET))
    expected = await full(client)
    old = await client.get(OldStatefulSet, "web")
    edit(old, expected)
    if way == "update":
        await client.update(old)
    else:
        await client.patch(old)
    assert comparable(await full(client)) == comparable(expected)


@pytest.mark.server
async def test_an_old_program_applies_what_it_knows_and_takes_away_nothing(client: Client) -> None:
    await client.create(Web.from_dict(STATEFUL_SET))
    expected = await full(client)
    old = OldStatefulSet(metadata=ObjectMeta(name="web"))
    old.spec.replicas = expected["spec"]["replicas"] = 7
    old.spec.template.spec.containers = [OldContainer(name="sidecar", image="sidecar:2")]
    pods(expected)["containers"][1]["image"] = "sidecar:2"
    await client.apply(old, field_manager="old-program", force=True)
    assert comparable(await full(client)) == comparable(expected)


async def test_nulls_and_forms_of_numbers_go_back_as_they_came() -> None:
    document = (
        b'{"apiVersion":"garden.example.com/v1","kind":"Plant","metadata":{"name":"p","namespace":"default","resourceVersion":"1"},'
        b'"spec":{"numbers":[1.0,1e3,-0.0,12345678901234567890,0.1000],"unknown":{"a":1.0,"b":1E+2,"c":null},"maybe":null,'
        b'"leaf":{"word":"before","other":18446744073709551616}}}'
    )
    sent: list[bytes] = []

    def answer(received: Received) -> Reply:
        sent.append(received.body)
        return Reply(body=document)

    async with FaultServer(answer=answer) as server, Client(Transport(server.config())) as client:
        found = await client.get(Plant, "p")
        found.spec.leaf.word = "after"
        await client.update(found)
    assert sent[-1] == document.replace(b"before", b"after")


def garden() -> dict[str, Any]:
    """A definition of Plant whose schema keeps all that comes."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "trees.garden.example.com"},
        "spec": {
            "group": "garden.example.com",
            "scope": "Namespaced",
            "names": {"plural": "trees", "singular": "tree", "kind": "Plant"},
            "versions": [version],
        },
    }


def without_nulls(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: without_nulls(value) for key, value in tree.items() if value is not None}
    return [without_nulls(item) for item in tree] if isinstance(tree, list) else tree


def as_go_writes(tree: Any) -> Any:
    """The tree with floats as a server answers them: without a fraction and below 1e21, all digits are written, which is an integer."""
    if isinstance(tree, dict):
        return {key: as_go_writes(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [as_go_writes(item) for item in tree]
    return int(Decimal(repr(tree))) if isinstance(tree, float) and tree.is_integer() and abs(tree) < 1e21 else tree


async def one_update(client: Client, rng: random.Random, way: str) -> None:
    made = {key: value for key, value in document(Plant, rng, 5).items() if key in ("spec", "status") and value is not None}
    await client.transport.request(
        "POST",
        "/apis/garden.example.com/v1/namespaces/default/trees",
        body=json.dumps(
            {"apiVersion": "garden.example.com/v1", "kind": "Plant", "metadata": {"generateName": "p-"}, "spec": {}, **made}
        ).encode(),
    )
    [plant] = await client.list(Plant, namespace=ALL_NAMESPACES)
    try:
        expected = to_dict(plant)
        note(f"read: {json.dumps(expected)}")
        Edit(rng).struct(plant.spec, expected["spec"])
        note(f"plain edit: {json.dumps(expected)}")
        await (client.update(plant) if way == "update" else client.patch(plant))
        found = to_dict(await client.get(Unstructured.for_kind("garden.example.com/v1", "Plant"), plant.metadata.name or ""))
        # Servers take nulls out of whatever a merge patch brings, in list items too: only an update can keep them.
        kept = without_nulls if way == "patch" else dict
        assert kept(found["spec"]) == kept(as_go_writes(expected["spec"]))
        assert found.get("status") == as_go_writes(expected.get("status"))
    finally:
        await client.delete(Plant, plant.metadata.name or "")


@pytest.mark.embedded
@pytest.mark.parametrize("way", ["update", "patch"])
def test_random_objects_of_which_the_models_know_a_part_survive_random_changes(way: str) -> None:
    with asyncio.Runner() as runner:
        server = HandlerServer()
        runner.run(server.__aenter__())
        try:
            client = server.client()
            runner.run(client.create(Unstructured.for_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").from_dict(garden())))

            @given(rng=st.randoms(use_true_random=False))
            @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
            def example(rng: random.Random) -> None:
                runner.run(one_update(client, rng, way))

            example()
        finally:
            runner.run(server.__aexit__(None, None, None))
