"""Drift, on both servers: differences are reported by path and as a diff, without fields that others added, and never secrets."""

from typing import Any

import pytest

from kubeloop.api.apps.v1 import Deployment, DeploymentSpec
from kubeloop.api.core.v1 import ConfigMap, Container, PodSpec, PodTemplateSpec, Secret, Service, ServicePort, ServiceSpec
from kubeloop.client import Client
from kubeloop.controller.children.children import Children
from kubeloop.controller.children.drift import find_drift, redacted
from kubeloop.controller.children.report import ForeignChild
from kubeloop.meta import LabelSelector, ObjectMeta

pytestmark = pytest.mark.server


@pytest.fixture
async def owner(client: Client) -> ConfigMap:
    return await client.create(ConfigMap(metadata=ObjectMeta(name="owner")))


@pytest.fixture
def children(client: Client) -> Children:
    return Children(client, field_manager="drift-test", kinds=[ConfigMap, Secret, Service, Deployment])


def config(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name), data=data)


def web(replicas: int = 0) -> Deployment:
    template = PodTemplateSpec(metadata=ObjectMeta(labels={"a": "b"}), spec=PodSpec(containers=[Container(name="web", image="nginx")]))
    spec = DeploymentSpec(replicas=replicas, selector=LabelSelector(match_labels={"a": "b"}), template=template)
    return Deployment(metadata=ObjectMeta(name="web"), spec=spec)


def service() -> Service:
    return Service(metadata=ObjectMeta(name="web"), spec=ServiceSpec(selector={"a": "b"}, ports=[ServicePort(port=80)]))


both_ways = pytest.mark.parametrize("ask", [True, False])


@both_ways
async def test_what_was_applied_and_not_touched_has_no_drift(client: Client, owner: ConfigMap, children: Children, ask: bool) -> None:
    await children.apply(owner, [config("a", k="1"), web(), service()])
    await client.patch(ConfigMap, "a", {"data": {"theirs": "x"}, "metadata": {"labels": {"theirs": "x"}}})
    assert await find_drift(children, owner, [config("a", k="1"), web(), service()], ask=ask) == []


@both_ways
async def test_differences_are_reported_by_path_and_as_a_diff(client: Client, owner: ConfigMap, children: Children, ask: bool) -> None:
    await children.apply(owner, [config("a", k="1", old="x"), web(), service()])
    await client.set_scale(Deployment, "web", 1)
    found = await find_drift(children, owner, [config("a", k="2"), web(), config("new", k="1")], ask=ask)
    assert [(one.title.replace(client.namespace, "NS"), one.drift_kind, one.paths) for one in found] == [
        ("ConfigMap NS/a", "changed", (".data.k", ".data.old")),
        ("ConfigMap NS/new", "missing", ()),
        ("Deployment NS/web", "changed", (".spec.replicas",)),
        ("Service NS/web", "extra", ()),
    ]
    changed = [line for line in found[0].lines() if line[0] in "+-"]
    title = f"ConfigMap {client.namespace}/a"
    assert changed == [f"--- live {title}", f"+++ wanted {title}", '-  k: "1"', "-  old: x", '+  k: "2"']
    assert "+  name: new" in str(found[1])
    assert "-kind: Service" in str(found[3])
    assert (await client.get(ConfigMap, "a")).data == {"k": "1", "old": "x"}, "nothing was written"


async def test_colours_are_for_people(owner: ConfigMap, children: Children) -> None:
    (missing,) = await find_drift(children, owner, [config("a", k="1")])
    text = missing.rich()
    assert text.plain.rstrip() == str(missing)
    assert "green" in {str(span.style) for span in text.spans}


@both_ways
async def test_values_of_secrets_are_not_shown(client: Client, owner: ConfigMap, children: Children, ask: bool) -> None:
    def secret(word: str) -> Secret:
        return Secret(metadata=ObjectMeta(name="s"), data={"word": word.encode(), "same": b"open"})

    await children.apply(owner, [secret("sesame")])
    (drift,) = await find_drift(children, owner, [secret("simsim")], ask=ask)
    assert drift.paths == (".data.word",)
    text = str(drift)
    assert "word: '*** (before)'" in text
    assert "word: '*** (after)'" in text
    for word in ("c2VzYW1l", "c2ltc2lt", "b3Blbg"):
        assert word not in text
        assert word not in repr(drift)


async def test_an_object_of_another_owner_in_the_way_is_named(client: Client, owner: ConfigMap, children: Children) -> None:
    await client.create(config("a"))
    with pytest.raises(ForeignChild, match=r"ConfigMap a .* not controlled by ConfigMap owner"):
        await find_drift(children, owner, [config("a")])


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        pytest.param({"data": {"a": "x"}}, {"data": {"a": "x"}}, ("***", "***"), id="the same value is a star on both sides"),
        pytest.param({"data": {"a": "x"}}, {"data": {"a": "y"}}, ("*** (before)", "*** (after)"), id="that a value differs is said"),
        pytest.param({"data": {}}, {"data": {"a": "y"}}, (None, "***"), id="a new value is not shown either"),
    ],
)
def test_stars(before: dict[str, Any], after: dict[str, Any], shown: tuple[str | None, str | None]) -> None:
    left, right = redacted({"kind": "Secret", **before}, {"kind": "Secret", **after})
    assert left is not None
    assert right is not None
    assert (left["data"].get("a"), right["data"].get("a")) == shown


def test_annotations_that_hold_the_secret_once_more_are_starred() -> None:
    noted = {"kind": "Secret", "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "sesame", "a": "b"}}}
    left, _ = redacted(noted, None)
    assert left is not None
    assert left["metadata"]["annotations"] == {"kubectl.kubernetes.io/last-applied-configuration": "***", "a": "b"}
