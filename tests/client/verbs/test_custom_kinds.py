"""All verbs on a kind declared in Python, with and without its class, with its definition on the server; and kubectl beside us."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar, assert_type

import msgspec
import pytest

from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.client import Client, ObjectList, Subresource, WriteOptions, extract
from kubeloop.codec import decode
from kubeloop.meta import (
    BadRequest,
    Conflict,
    Invalid,
    KindInfo,
    Model,
    NotFound,
    ObjectMeta,
    Resource,
    Unstructured,
    UnsupportedMediaType,
    custom_resource,
    kind_info,
)
from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

# Others may have widgets too.
GROUP = f"verbs{uuid.uuid4().hex[:8]}.example.com"

WIDGETS = f"widgets.{GROUP}"


class Part(Model):
    name: str = ""
    size: int | None = None


class WidgetSpec(Model):
    __list_keys__: ClassVar[dict[str, tuple[str, ...]]] = {"parts": ("name",)}

    size: int = 1
    replicas: int | None = None
    colour: str | None = None
    parts: list[Part] = msgspec.field(default_factory=list)


class WidgetStatus(Model):
    replicas: int | None = None
    phase: str | None = None


@custom_resource(f"{GROUP}/v1", plural="widgets")
class Widget(Resource):
    spec: WidgetSpec = msgspec.field(default_factory=WidgetSpec)
    status: WidgetStatus = msgspec.field(default_factory=WidgetStatus)


def definition() -> dict[str, Any]:
    part = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}
    spec: dict[str, Any] = {
        "size": {"type": "integer", "default": 3},
        "replicas": {"type": "integer"},
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": part},
        "future": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    status = {"replicas": {"type": "integer"}, "phase": {"type": "string"}}
    properties = {"spec": {"type": "object", "properties": spec}, "status": {"type": "object", "properties": status}}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "subresources": {"status": {}, "scale": scale},
    }
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": WIDGETS},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all, so that kubectl asks for discovery once."""
    return tmp_path_factory.mktemp("kubectl")


@pytest.fixture
def kubectl(server: ServerUnderTest, namespace: str, home: Path) -> Kubectl:
    return Kubectl(Path(server.kubeconfig), home, namespace)


@pytest.fixture(scope="module")
def published() -> set[str]:
    """Servers that serve widgets to everybody by now."""
    return set()


@pytest.fixture
async def widgets(client: Client, kubectl: Kubectl, published: set[str]) -> AsyncIterator[Client]:
    """The client, when the server serves widgets and everybody knows."""
    if not published:
        await client.create(decode(CustomResourceDefinition, json.dumps(definition()).encode()))
        await client.wait_ready(CustomResourceDefinition, WIDGETS, timeout=30)
        await asyncio.to_thread(kubectl.wait_published, GROUP, "v1", "widgets")
        published.add(GROUP)
    yield client
    await client.delete_collection(Widget)


@pytest.fixture(scope="module", autouse=True)
def _definition_ends(server: ServerUnderTest) -> Any:
    yield

    async def end() -> None:
        async with Client.from_config(server.kubeconfig) as client:
            await client.delete(CustomResourceDefinition, WIDGETS)

    asyncio.run(end())


def widget(name: str = "w", **spec: Any) -> Widget:
    return Widget(metadata=ObjectMeta(name=name, labels={"app": "web"}), spec=WidgetSpec(**spec))


async def test_every_verb_knows_the_class(widgets: Client, kubectl: Kubectl, namespace: str) -> None:
    client = widgets
    created = assert_type(await client.create(widget(colour="red", parts=[Part(name="a", size=1)])), Widget)
    assert created.spec.size == 3  # the server's default: that of the class was not sent
    assert kubectl("get", WIDGETS, "w", "-o", "jsonpath={.spec.colour} {.spec.size} {.spec.parts[0].name}") == "red 3 a"

    read = assert_type(await client.get(Widget, "w"), Widget)
    read.spec.parts.append(Part(name="b"))
    updated = assert_type(await client.update(read), Widget)
    assert kubectl("get", WIDGETS, "w", "-o", "jsonpath={.spec.parts[*].name}") == "a b"

    kubectl("patch", WIDGETS, "w", "--type=merge", "-p", '{"spec":{"future":{"x":1}}}')
    updated.spec.colour = "blue"
    with pytest.raises(Conflict):
        await client.update(updated)
    patched = await client.patch(updated)
    assert (patched.spec.colour, json.loads(kubectl("get", WIDGETS, "w", "-o", "json"))["spec"]["future"]) == ("blue", {"x": 1})
    patched = await client.patch(Widget, "w", Widget(spec=WidgetSpec(replicas=2)))
    assert (patched.spec.replicas, patched.spec.colour) == (2, "blue")

    patched.status.phase = "Running"
    await client.update_status(patched)
    assert (await client.wait_for(Widget, "w", "jsonpath={.status.phase}=Running", timeout=30)).status.phase == "Running"

    scaled = await client.set_scale(Widget, "w", 5)
    assert scaled.spec.replicas == 5
    assert kubectl("get", WIDGETS, "w", "-o", "jsonpath={.spec.replicas}") == "5"

    listed = assert_type(await client.list(Widget, namespace=namespace, label_selector="app=web"), ObjectList[Widget])
    assert [one.spec.colour for one in listed] == ["blue"]
    async with asyncio.timeout(30), client.watch(Widget, namespace=namespace, resource_version=listed.resource_version) as events:
        kubectl("label", WIDGETS, "w", "tier=front")
        event = await anext(aiter(events))
        assert (event.type, event.object.metadata.labels["tier"], event.object.spec.replicas) == ("MODIFIED", "front", 5)

    assert (await client.get_metadata(Widget, "w")).metadata.labels["tier"] == "front"
    await client.delete(event.object)
    assert kubectl.run("get", WIDGETS, "w").code == 1


async def test_apply_owns_what_was_set_and_keeps_what_the_class_does_not_know(widgets: Client, kubectl: Kubectl, namespace: str) -> None:
    client = widgets
    await client.apply(widget(colour="red", parts=[Part(name="a", size=1)]), field_manager="ops")
    manifest = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {"parts": [{"name": "b", "size": 2}], "future": {"x": 1.5}},
    }
    kubectl("apply", "--server-side", "--field-manager=theirs", "-f", "-", stdin=json.dumps(manifest))
    both = await client.get(Widget, "w")
    assert [one.name for one in both.spec.parts] == ["a", "b"]
    ours, theirs = extract(both, "ops"), extract(both, "theirs")
    assert (ours.spec.colour, ours.spec.parts, ours.spec.size) == ("red", [Part(name="a", size=1)], 1)
    assert theirs.spec.parts == [Part(name="b", size=2)]
    theirs.spec.parts[0].size = 7
    changed = await client.apply(theirs, field_manager="theirs")
    assert [(one.name, one.size) for one in changed.spec.parts] == [("a", 1), ("b", 7)]
    assert json.loads(kubectl("get", WIDGETS, "w", "-o", "json"))["spec"]["future"] == {"x": 1.5}
    assert changed.spec.size == 3  # no manager's but the definition's


async def test_an_update_keeps_what_the_class_does_not_know(widgets: Client, kubectl: Kubectl, namespace: str) -> None:
    tree = {"metadata": {"name": "w"}, "spec": {"colour": "red", "future": {"deep": [{"a": None}, 1.50]}}}
    await widgets.create(Unstructured.for_kind(f"{GROUP}/v1", "Widget").from_dict(tree))
    read = await widgets.get(Widget, "w")
    read.spec.colour = "blue"
    await widgets.update(read)
    spec = json.loads(kubectl("get", WIDGETS, "w", "-o", "json"))["spec"]
    assert spec == {"colour": "blue", "size": 3, "future": {"deep": [{"a": None}, 1.5]}}


async def test_what_the_schema_forbids_is_invalid_with_its_field(widgets: Client, namespace: str) -> None:
    with pytest.raises(Invalid) as raised:
        await widgets.create(widget(colour="green"))
    assert [cause.field for cause in raised.value.causes] == ["spec.colour"]


async def test_a_value_of_another_type_is_never_sent(widgets: Client, namespace: str) -> None:
    with pytest.raises(ValueError, match=r'Widget "w": spec\.parts\[0\]\.size: expected int \| null, got str'):
        await widgets.create(widget(parts=[Part(name="a", size="big")]))  # type: ignore[arg-type]  # on purpose
    with pytest.raises(NotFound):
        await widgets.get(Widget, "w")


async def test_unknown_fields_are_refused_if_asked_for(widgets: Client, namespace: str) -> None:
    odd = Unstructured.for_kind(f"{GROUP}/v1", "Widget").from_dict({"metadata": {"name": "w"}, "spec": {"sice": 1}})
    with pytest.raises(BadRequest, match=r'unknown field "spec\.sice"'):
        await widgets.create(odd, options=WriteOptions(field_validation="Strict"))


async def test_a_strategic_patch_is_for_built_in_kinds_only(widgets: Client, namespace: str) -> None:
    await widgets.create(widget())
    with pytest.raises(UnsupportedMediaType):
        await widgets.patch(Widget, "w", {"spec": {"size": 2}}, type="strategic")


async def test_a_kind_without_a_class_is_found_in_discovery_as_soon_as_it_is_served(widgets: Client, namespace: str) -> None:
    kind = Unstructured.for_kind(f"{GROUP}/v1", "Widget")
    made = await widgets.create(kind.from_dict({"metadata": {"name": "w"}, "spec": {"size": 5}}))
    assert made["spec"] == {"size": 5}
    scale = assert_type(widgets.subresource(kind, "w", "status"), Subresource)
    made["status"] = {"phase": "Running"}
    assert (await scale.update(made))["status"] == {"phase": "Running"}
    assert assert_type(kind_info(Widget), KindInfo).plural == "widgets"
