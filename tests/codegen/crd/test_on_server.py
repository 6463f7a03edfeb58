"""A rendered definition is accepted by a server, which then holds objects to what the class declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kubeloop.client import Client
from kubeloop.codegen.crd import classes_at, definitions_of, to_yaml
from kubeloop.meta import Invalid, ObjectMeta, Quantity, Resource, Unstructured
from kubeloop.schema.classes import check
from tests.codegen.crd.kinds import Gadget, GadgetSpec, GadgetStatus, Hall, Port
from tests.kubectl.conftest import kubectl as kubectl
from tests.kubectl.conftest import kubectl_home as kubectl_home
from tests.kubectl.runner import Kubectl

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]

NAMES = ("gadgets.kubeloop-codegen.example.com", "halls.kubeloop-codegen.example.com")


@pytest.fixture
def installed(kubectl: Kubectl) -> Iterator[Kubectl]:
    # Definitions with Kubernetes' own structs do not fit into client-side apply's annotation.
    kubectl("apply", "--server-side", "-f", "-", stdin=to_yaml(definitions_of(classes_at("tests.codegen.crd.kinds"))))
    for name in NAMES:
        kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=30s")
    kubectl.wait_published("kubeloop-codegen.example.com", "v1", "gadgets")
    kubectl.wait_published("kubeloop-codegen.example.com", "v1", "halls")
    yield kubectl
    kubectl("delete", "crd", *NAMES, "--wait")


async def test_a_class_becomes_a_kind_whose_rules_the_server_keeps(client: Client, installed: Kubectl) -> None:
    made = await client.create(
        Gadget(metadata=ObjectMeta(name="a"), spec=GadgetSpec(min=2, ports=[Port(name="web")], memory=Quantity("1Gi")))
    )
    assert (made.spec.max, made.spec.mode, made.spec.surge, made.spec.ports[0].number) == (10, "Fast", "25%", 80)
    sent = await client.get(Gadget, "a")
    assert (sent.spec.window, sent.spec.flag, sent.spec.ports[0].protocol) == (made.spec.window, False, "TCP")
    assert check(sent) == []

    with pytest.raises(ValueError, match=r'Gadget "b": spec.max: expected int <= 100'):
        await client.create(Gadget(metadata=ObjectMeta(name="b"), spec=GadgetSpec(max=101)))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"max": 102}, "spec.max"),
        ({"max": 7}, "spec.max"),
        ({"min": 20}, "spec.min"),
        ({"mode": "Turbo"}, "spec.mode"),
        ({"level": 2}, "spec.level"),
        ({"ports": [{"name": "Web"}]}, "spec.ports[0].name"),
        ({"ports": [{"name": "web"}, {"name": "web", "number": 81}]}, "spec.ports[1]"),
        ({"tags": ["a", "a"]}, "spec.tags[1]"),
        ({"labels": {"a": "x" * 64}}, "spec.labels.a"),
        ({"window": {"ratio": 0}}, "spec.window.ratio"),
        ({"memory": "much"}, "spec.memory"),
        ({"whole": {"kind": "Pod"}}, "spec.whole.apiVersion"),
    ]
    for wrong, field in refused:
        head = {"apiVersion": Gadget.api_version, "kind": "Gadget", "metadata": {"name": "b"}}
        with pytest.raises(Invalid) as caught:
            await client.create(Unstructured.from_dict({**head, "spec": wrong}))
        assert field in [cause.field for cause in caught.value.causes]

    made.spec.mode = "Slow"
    with pytest.raises(Invalid, match="mode cannot change"):
        await client.update(made)
    made.spec.mode, made.status = "Fast", GadgetStatus(replicas=3)
    assert (await client.update_status(made)).status == GadgetStatus(replicas=3)
    assert installed("scale", "gadget/a", "--replicas=4") == "gadget.kubeloop-codegen.example.com/a scaled\n"
    header = installed("get", "gd", "-o", "wide", "--field-selector=spec.mode=Fast").splitlines()[0]
    assert header.split() == ["NAME", "MODE", "MAX", "AGE"]
    assert "use v1" in installed.run("get", "gadgets.v1beta1.kubeloop-codegen.example.com").err
    assert "Where it listens" in installed("explain", "gadget.spec.ports.number")

    hall: Resource = await client.create(Hall(metadata=ObjectMeta(name="kubeloop-codegen"), size=1))
    assert hall.metadata.namespace == ""
