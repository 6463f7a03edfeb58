"""Sets of children, on both servers: made, changed, left alone and pruned; and never another owner's."""

from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest

from kubeloop.api.apps.v1 import Deployment, DeploymentSpec
from kubeloop.api.core.v1 import (
    ConfigMap,
    Container,
    Namespace,
    PodSpec,
    PodTemplateSpec,
    ResourceRequirements,
    Secret,
    Service,
    ServicePort,
    ServiceSpec,
)
from kubeloop.api.rbac.v1 import ClusterRole
from kubeloop.client import Client, Write
from kubeloop.controller import OwnershipError, set_controller_reference
from kubeloop.controller.children.children import Children
from kubeloop.controller.children.desired import SET_LABEL, UnplacedChild
from kubeloop.controller.children.report import ChildrenFailed, ForeignChild
from kubeloop.controller.children.writer import _type_of
from kubeloop.merge.fields import MergeType
from kubeloop.merge.fields.from_schema import FieldTypes
from kubeloop.meta import Conflict, GroupVersionKind, LabelSelector, NotFound, ObjectMeta, Quantity, Unstructured

pytestmark = pytest.mark.server

KINDS = (ConfigMap, Secret, Service, Deployment)


@pytest.fixture
async def owner(client: Client) -> ConfigMap:
    return await client.create(ConfigMap(metadata=ObjectMeta(name="owner")))


@pytest.fixture
async def writes(client: Client) -> AsyncIterator[list[str]]:
    """What was written through the client, as VERB NAME; for the tests that say that nothing was."""
    lines: list[str] = []

    def heard(write: Write) -> None:
        lines.append(f"{write.verb} {write.name}")

    stop = client.on_write(heard)
    yield lines
    stop()


def config(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name), data=data)


def deployment(name: str = "web", image: str = "nginx:1", cpu: str = "1000m") -> Deployment:
    limits = ResourceRequirements(limits={"cpu": Quantity(cpu)})
    container = Container(name="web", image=image, resources=limits)
    template = PodTemplateSpec(metadata=ObjectMeta(labels={"app": name}), spec=PodSpec(containers=[container]))
    spec = DeploymentSpec(replicas=0, selector=LabelSelector(match_labels={"app": name}), template=template)
    return Deployment(metadata=ObjectMeta(name=name), spec=spec)


def service(name: str = "web") -> Service:
    return Service(metadata=ObjectMeta(name=name), spec=ServiceSpec(selector={"app": name}, ports=[ServicePort(port=80)]))


def children(client: Client, mode: Literal["apply", "patch"] = "apply", **options: Any) -> Children:
    return Children(client, field_manager="children-test", kinds=KINDS, mode=mode, **options)


both_modes = pytest.mark.parametrize("mode", ["apply", "patch"])


@both_modes
async def test_a_set_is_made_changed_and_pruned(client: Client, owner: ConfigMap, mode: Literal["apply", "patch"]) -> None:
    of_owner = children(client, mode)
    report = await of_owner.apply(owner, [deployment(), service(), config("a", k="1"), config("b")])
    assert str(report) == "4 created"
    assert [one.name for one in report] == ["a", "b", "web", "web"], "configuration, then services, then what runs"
    made = await client.get(Deployment, "web")
    assert made.metadata.owner_references[0].uid == owner.metadata.uid
    assert made.metadata.labels[SET_LABEL] == f"main.{owner.metadata.uid}"

    report = await of_owner.apply(owner, [deployment(image="nginx:2"), config("a")])
    assert [(one.name, one.did) for one in report] == [("a", "updated"), ("web", "updated"), ("web", "pruned"), ("b", "pruned")]
    assert (await client.get(ConfigMap, "a")).data == {}, "a field that a child no longer needs is removed"
    with pytest.raises(NotFound):
        await client.get(Service, "web")


@both_modes
async def test_an_unchanged_child_is_not_sent_again(
    client: Client, owner: ConfigMap, mode: Literal["apply", "patch"], writes: list[str]
) -> None:
    def wanted() -> list[Any]:
        return [deployment(), service(), config("a", k="1")]

    of_owner = children(client, mode)
    await of_owner.apply(owner, wanted())
    writes.clear()
    again = await of_owner.apply(owner, wanted())
    assert str(again) == "3 unchanged"
    assert not again.changed
    assert not any(one.sent for one in again), "1000m, which the server stores as 1, is not sent again and again"
    after_restart = await children(client, mode).apply(owner, [config("a", k="1"), service()], prune=False)
    assert not any(one.sent for one in after_restart), "what was applied is known from the child itself"
    assert writes == []


@both_modes
async def test_fields_of_other_writers_stay_except_those_of_the_desired_child(
    client: Client, owner: ConfigMap, mode: Literal["apply", "patch"]
) -> None:
    of_owner = children(client, mode)
    await of_owner.apply(owner, [config("a", k="1"), deployment()])
    await client.patch(ConfigMap, "a", {"data": {"k": "drifted", "theirs": "x"}})
    sidecar = PodTemplateSpec(spec=PodSpec(containers=[Container(name="sidecar", image="envoy")]))
    await client.patch(Deployment, "web", Deployment(spec=DeploymentSpec(template=sidecar)), type="strategic")
    report = await of_owner.apply(owner, [config("a", k="1"), deployment()])
    assert [(one.name, one.did) for one in report] == [("a", "updated"), ("web", "unchanged")]
    assert (await client.get(ConfigMap, "a")).data == {"k": "1", "theirs": "x"}
    containers = (await client.get(Deployment, "web")).spec.template.spec.containers
    assert sorted(one.name for one in containers) == ["sidecar", "web"]


@both_modes
async def test_a_child_of_another_owner_is_refused_and_the_others_are_applied(
    client: Client, owner: ConfigMap, mode: Literal["apply", "patch"]
) -> None:
    rival = await client.create(config("rival"))
    taken = config("taken", theirs="1")
    taken.metadata.namespace = client.namespace
    set_controller_reference(rival, taken)
    await client.create(taken)
    await client.create(config("orphan"))
    of_owner = children(client, mode)
    await of_owner.apply(owner, [config("old")])
    with pytest.raises(ChildrenFailed, match=r"2 of 3 children failed: ConfigMap taken .* controlled by ConfigMap rival") as caught:
        await of_owner.apply(owner, [config("taken", mine="1"), config("orphan"), config("free")])
    report = caught.value.report
    assert [(one.name, one.did) for one in report] == [("taken", "failed"), ("orphan", "failed"), ("free", "created")]
    assert all(isinstance(one.error, ForeignChild) for one in report.failed)
    assert report.kept.startswith("a child failed"), "an obsolete child stays while another one failed"
    assert (await client.get(ConfigMap, "taken")).data == {"theirs": "1"}
    adopted = await children(client, mode, adopt=True).apply(owner, [config("taken"), config("orphan"), config("free")], check=False)
    assert [(one.name, one.did) for one in adopted] == [("taken", "failed"), ("orphan", "updated"), ("free", "unchanged")]


async def test_nothing_of_others_is_pruned(client: Client, owner: ConfigMap) -> None:
    main, other = children(client), children(client, name="other")
    await main.apply(owner, [config("a")])
    await other.apply(owner, [config("b")])
    by_hand = config("by-hand")
    by_hand.metadata.namespace = client.namespace
    set_controller_reference(owner, by_hand)
    await client.create(by_hand)
    labelled = config("labelled")
    labelled.metadata.labels = {SET_LABEL: f"main.{owner.metadata.uid}"}
    await client.create(labelled)
    report = await main.apply(owner, [])
    assert [(one.name, one.did) for one in report] == [("a", "pruned")], "of another set, without the label, without the owner: all stay"
    assert {one.metadata.name for one in await client.list(ConfigMap, namespace=client.namespace)} >= {"b", "by-hand", "labelled"}
    assert len(await main.apply(owner, [])) == 0


@both_modes
async def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    client: Client, owner: ConfigMap, mode: Literal["apply", "patch"], writes: list[str]
) -> None:
    of_owner = children(client, mode)
    await of_owner.apply(owner, [config("a", k="1"), config("b"), config("same")])
    writes.clear()
    report = await of_owner.apply(owner, [config("a", k="2"), config("new"), config("same")], dry_run=True)
    assert [(one.name, one.did) for one in report] == [("a", "updated"), ("new", "created"), ("same", "unchanged"), ("b", "pruned")]
    assert str(report).endswith("(dry run)")
    assert writes == []
    assert (await client.get(ConfigMap, "a")).data == {"k": "1"}
    assert (await of_owner.apply(owner, [config("a", k="2"), config("same")])).changed, "what was only tried is not taken for done"


async def test_without_force_another_manager_s_field_is_a_conflict(client: Client, owner: ConfigMap) -> None:
    await children(client).apply(owner, [config("a", k="1")])
    await client.apply(config("a", k="9"), field_manager="rival", force=True, namespace=client.namespace)
    with pytest.raises(ChildrenFailed) as caught:
        await children(client, force=False).apply(owner, [config("a", k="1")])
    assert isinstance(caught.value.report.failed[0].error, Conflict)
    assert (await children(client).apply(owner, [config("a", k="1")])).changed


async def test_a_child_that_is_still_terminating_is_reported_and_created_when_it_is_gone(client: Client, owner: ConfigMap) -> None:
    of_owner = children(client)
    await of_owner.apply(owner, [config("a")])
    await client.patch(ConfigMap, "a", {"metadata": {"finalizers": ["children.example.com/held"]}})
    await client.delete(ConfigMap, "a")
    report = await of_owner.apply(owner, [config("a")])
    assert [one.did for one in report] == ["deleting"]
    assert [one.did for one in await of_owner.apply(owner, [])] == [], "a terminating child is not pruned again"
    await client.patch(ConfigMap, "a", {"metadata": {"finalizers": None}})
    assert str(await of_owner.apply(owner, [config("a")])) == "1 created"


async def test_unstructured_children_are_applied_alike(client: Client, owner: ConfigMap) -> None:
    def child(colour: str) -> Unstructured:
        return Unstructured.from_dict({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "u"}, "data": {"colour": colour}})

    of_owner = children(client)
    wish = child("red")
    assert str(await of_owner.apply(owner, [wish])) == "1 created"
    assert "labels" not in wish["metadata"], "the given object is not changed"
    assert str(await of_owner.apply(owner, [child("red")])) == "1 unchanged"
    assert str(await of_owner.apply(owner, [child("blue")])) == "1 updated"
    assert str(await of_owner.apply(owner, [])) == "1 pruned"


@pytest.mark.parametrize(
    ("desired", "error", "says"),
    [
        pytest.param([config("")], UnplacedChild, "has no metadata.name.*owner-configmap", id="a child without a name is refused"),
        pytest.param([config("a"), config("a")], UnplacedChild, "ConfigMap a is twice", id="a child that is named twice is refused"),
        pytest.param(
            [Namespace(metadata=ObjectMeta(name="n"))], OwnershipError, "cluster-scoped", id="a cluster-scoped child is refused (S230)"
        ),
        pytest.param(
            [ConfigMap(metadata=ObjectMeta(name="a", namespace="elsewhere"))],
            OwnershipError,
            "owners live in the same namespace",
            id="a child in another namespace is refused (S230)",
        ),
    ],
)
async def test_a_set_that_cannot_be_is_refused_before_anything_is_sent(
    client: Client, owner: ConfigMap, desired: list[Any], error: type[Exception], says: str, writes: list[str]
) -> None:
    with pytest.raises(error, match=says):
        await children(client).apply(owner, [config("first"), *desired])
    assert writes == []


async def test_an_object_that_was_read_is_no_wish_but_what_a_manager_owns_of_it_is(client: Client, owner: ConfigMap) -> None:
    of_owner = children(client)
    for kind in (ConfigMap, Unstructured.for_kind("v1", "ConfigMap")):
        found = await client.get(kind, "owner")
        with pytest.raises(ValueError, match=r"read from the server|managedFields"):
            await of_owner.apply(owner, [found])
        found.metadata.managed_fields = []  # as informers keep them
        with pytest.raises(ValueError, match="read from the server"):
            await of_owner.apply(owner, [found])
    await of_owner.apply(owner, [config("a", k="1")])
    owned = await client.get_owned(ConfigMap, "a", field_manager="children-test")
    owned.data["k"] = "2"
    assert str(await of_owner.apply(owner, [owned])) == "1 updated"
    owned = await client.get_owned(ConfigMap, "a", field_manager="children-test")
    assert str(await of_owner.apply(owner, [owned])) == "1 unchanged"


async def test_a_cluster_scoped_owner_has_children_in_namespaces_and_beside_it(client: Client) -> None:
    def role(name: str) -> ClusterRole:
        return ClusterRole(metadata=ObjectMeta(name=f"{name}-{client.namespace}"))

    def placed(name: str) -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(name=name, namespace=client.namespace))

    owner = await client.create(role("owner"))
    of_owner = Children(client, field_manager="children-test", kinds=[ConfigMap, ClusterRole])
    with pytest.raises(UnplacedChild, match=r"ConfigMap a has no metadata.namespace, and its owner ClusterRole has none"):
        await of_owner.apply(owner, [config("a")])
    assert str(await of_owner.apply(owner, [placed("a"), role("child")])) == "2 created"
    assert str(await of_owner.apply(owner, [placed("a"), role("child")])) == "2 unchanged"
    assert [one.name for one in (await of_owner.apply(owner, [])).pruned] == ["a", f"child-{client.namespace}"], "in the opposite order"
    await client.delete(owner)


@pytest.mark.parametrize("name", ["", "x" * 27, "not a label", "ends-"])
def test_the_name_of_a_set_fits_into_a_label(name: str) -> None:
    with pytest.raises(ValueError, match="of a set of children"):
        Children(Client.__new__(Client), name=name, field_manager="m")


@pytest.mark.parametrize("mode", ["apply", "patch"])
async def test_prepare_examines_the_kinds_and_writes_nothing(
    client: Client, owner: ConfigMap, writes: list[str], mode: Literal["apply", "patch"], monkeypatch: pytest.MonkeyPatch
) -> None:
    examined: list[str] = []

    def of_kind(self: FieldTypes, gvk: GroupVersionKind) -> MergeType | None:
        examined.append(gvk.kind)
        return original(self, gvk)

    original = FieldTypes.of_kind
    monkeypatch.setattr(FieldTypes, "of_kind", of_kind)
    _type_of.cache_clear()
    children = Children(client, field_manager="shops", mode=mode, kinds=KINDS)
    desired = [deployment(), config("settings", a="1"), Unstructured.from_dict(Secret(metadata=ObjectMeta(name="s")).to_dict())]
    await children.prepare(owner, desired)
    assert (sorted(examined), writes) == (["ConfigMap", "Deployment", "Secret"], [])

    report = await children.apply(owner, desired)
    assert (str(report), len(examined)) == ("3 created", 3)
    assert str(await children.apply(owner, desired)) == "3 unchanged"


async def test_prepare_refuses_what_apply_refuses(client: Client, owner: ConfigMap) -> None:
    with pytest.raises(UnplacedChild, match="twice"):
        await Children(client, field_manager="shops").prepare(owner, [config("a"), config("a")])
