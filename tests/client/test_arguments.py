"""An argument that is no kind, no object, no name or no time is refused with its description, before anything is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from kubeloop.api.core.v1 import ConfigMap, Pod
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta, PartialObject, Resource, Unstructured
from kubeloop.transport import Transport
from tests.faults import FaultServer

Ask: TypeAlias = Callable[[Any], Awaitable[object]]

TREE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        pytest.param(
            lambda c: c.get("Pod", "x"), 'the text "Pod" was given where a kind is meant: a class of kubeloop.api', id="a kind as text"
        ),
        pytest.param(lambda c: c.list("pods"), 'the text "pods" was given where a kind is meant', id="a resource as text"),
        pytest.param(
            lambda c: c.get(Pod(), "x"), "a Pod object was given where a kind is meant; give the class: Pod", id="an object as kind"
        ),
        pytest.param(
            lambda c: c.list(Unstructured), "Unstructured alone is not a kind; say which: Unstructured.for_kind", id="no kind at all"
        ),
        pytest.param(lambda c: c.get(int, "x"), "an int was given where a kind is meant", id="another class"),
        pytest.param(lambda c: c.delete(TREE), "a dict was given where a kind is meant", id="a tree to delete"),
        pytest.param(lambda c: c.create(TREE), "a dict was given where an object is meant; make one of it: Unstructured", id="a tree"),
        pytest.param(lambda c: c.apply(TREE, field_manager="me"), "a dict was given where an object is meant", id="a tree to apply"),
        pytest.param(
            lambda c: c.apply(ConfigMap, field_manager="me"), "the class ConfigMap was given where an object", id="a class to apply"
        ),
        pytest.param(lambda c: c.create(ConfigMap), r"the class ConfigMap was given where an object is meant; make one", id="a class"),
        pytest.param(lambda c: c.update(ConfigMap), "the class ConfigMap was given where an object is meant", id="a class to update"),
        pytest.param(
            lambda c: c.patch(ConfigMap, {"data": {}}), r"patch: say which and how, patch\(ConfigMap, NAME, PATCH\)", id="no name"
        ),
        pytest.param(lambda c: c.patch("cm", "x", {}), 'the text "cm" was given where a kind is meant', id="a patch of text"),
        pytest.param(
            lambda c: c.patch(ConfigMap(), patch={"data": {}}), r"patch: an object was given together with .* a patch", id="two patches"
        ),
        pytest.param(lambda c: c.patch(ConfigMap(), "x"), "patch: an object was given together with a name", id="two names"),
        pytest.param(lambda c: c.patch(ConfigMap(), namespace="x"), "patch: an object was given together with", id="two namespaces"),
        pytest.param(
            lambda c: c.patch_metadata(ConfigMap, PartialObject(), {}),
            "patch_metadata: metadata .* was given together with",
            id="two patches of metadata",
        ),
        pytest.param(lambda c: c.patch_metadata(ConfigMap, "x"), "patch_metadata: no patch was given", id="no patch"),
        pytest.param(lambda c: c.pods.exec(None, ["ls"]), "None names no pod: give", id="a command without a pod"),
        pytest.param(lambda c: c.get(Pod, 3), "name=3: must be text", id="a number as name"),
        pytest.param(lambda c: c.list(Pod, namespace=3), "namespace=3: must be text", id="a number as namespace"),
        pytest.param(lambda c: c.wait_ready(Pod, "x", timeout="5s"), "timeout='5s': must be a number of seconds", id="text as time"),
        pytest.param(lambda c: c.wait_gone(Pod, "x", timeout=None), "timeout=None: .*each wait has an end", id="a wait without end"),
        pytest.param(lambda c: c.wait_rollout(Pod, "x", timeout=float("inf")), "timeout=inf: .*each wait has an end", id="no end at all"),
    ],
)
async def test_a_wrong_argument_is_named(ask: Ask, says: str) -> None:
    await refused(ask, TypeError, says)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        pytest.param(lambda c: c.get(Pod, ""), "no name was given for the Pod", id="no name"),
        pytest.param(lambda c: c.get(Pod, "x", namespace="*"), "ALL_NAMESPACES .* names no single namespace", id="a star for one"),
        pytest.param(
            lambda c: c.patch(Pod, "x", {}, type="mrge"), "type='mrge': must be one of merge, json, strategic, apply", id="a patch"
        ),
        pytest.param(
            lambda c: c.create(made(ConfigMap, metadata={"name": "x"})),
            "ConfigMap: metadata: expected ObjectMeta, got dict",
            id="metadata as a tree",
        ),
        pytest.param(
            lambda c: c.apply(made(ConfigMap, metadata={"name": "x"}), field_manager="me"),
            "ConfigMap: metadata: expected ObjectMeta, got dict",
            id="metadata as a tree, applied",
        ),
        pytest.param(
            lambda c: c.create(made(Pod, metadata=ObjectMeta(name="x"), spec=ObjectMeta())),
            'Pod "x": spec: expected PodSpec, got ObjectMeta',
            id="a struct of another place",
        ),
    ],
)
async def test_a_wrong_value_is_named(ask: Ask, says: str) -> None:
    await refused(ask, ValueError, says)


async def refused(ask: Ask, error: type[Exception], says: str) -> None:
    async with FaultServer() as server, Client(Transport(server.config())) as client:
        with pytest.raises(error, match=says):
            await ask(client)
    assert server.received == []


def made(cls: type[Resource], **fields: Any) -> Resource:
    """A constructor that a type checker would not let pass."""
    return cls(**fields)
