"""Values of ``module:attribute`` for ``kubeloop run``, and errors for other values."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeloop import Client, Controller, Manager, Model, Resource, custom_resource
from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.api.core.v1 import ConfigMap, Namespace
from kubeloop.cli.application import named
from kubeloop.cli.run.app import WANTED, AppError, controllers_of, manager_of
from kubeloop.cli.run.board import DashboardSnapshots
from kubeloop.cli.run.manifests import InstallError, custom_kinds, install
from kubeloop.cli.run.options import RunOptions
from kubeloop.meta import ObjectMeta, Unstructured
from kubeloop.meta.errors import ConfigError
from kubeloop.testing.kube_cluster import OwnServer, own_server
from kubeloop.timing import SystemClock

HERE = __name__


class Maps(Controller[ConfigMap], name="maps"):
    async def reconcile(self, config: ConfigMap) -> None:
        if config.metadata.name == "bad":
            raise RuntimeError("this one is bad")


class Named(Controller[ConfigMap]):
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    async def reconcile(self, config: ConfigMap) -> None: ...


class Broken(Controller[ConfigMap]):
    def __init__(self) -> None:
        raise RuntimeError("no disk")

    async def reconcile(self, config: ConfigMap) -> None: ...


class PartSpec(Model):
    size: int = 1


@custom_resource("running.kubeloop.example.com/v1", plural="parts")
class Part(Resource):
    spec: PartSpec


class PartController(Controller[Part], owns=[ConfigMap]):
    async def reconcile(self, part: Part) -> None: ...


async def background() -> None:
    await asyncio.Event().wait()


def with_client(client: Client) -> list[Any]:
    assert isinstance(client, Client)
    return [Maps(), background]


async def later(client: Client) -> Manager:
    await asyncio.sleep(0)
    return Manager(client, [Maps()], grace=300.0)


def optional(verbose: bool = False) -> type[Maps]:
    assert verbose is False
    return Maps


@pytest.fixture
async def cluster() -> AsyncIterator[OwnServer]:
    async with own_server(SystemClock()) as found:
        yield found


@pytest.mark.parametrize(
    ("target", "names"),
    [
        pytest.param(Maps(), ["maps"], id="a controller"),
        pytest.param(Maps, ["maps"], id="its class"),
        pytest.param([Maps, PartController()], ["maps", "part"], id="a list of both"),
        pytest.param((Maps(), background), ["maps", "background"], id="and of what else a manager runs"),
        pytest.param(lambda: [Maps()], ["maps"], id="a function of nothing"),
        pytest.param(with_client, ["maps", "background"], id="a function of the client"),
        pytest.param(later, ["maps"], id="an async function, and a Manager"),
        pytest.param(optional, ["maps"], id="a function with its own options does not get the client"),
    ],
)
async def test_what_a_program_may_be(cluster: OwnServer, target: Any, names: list[str]) -> None:
    manager = await manager_of(target, RunOptions(target="m:app", grace=7.0), cluster.client())
    assert [one.name for one in manager.runnables] == names
    assert [type(one)._declaration().name for one in controllers_of(manager)] == [name for name in names if name != "background"]
    assert manager.grace == 7.0
    assert manager.elector is None


REFUSED = [
    pytest.param([], "m:app: holds no controller", id="an empty list"),
    pytest.param(7, "m:app: 7 cannot be run; expected a controller, its class, a list", id="a number"),
    pytest.param("Maps", "m:app: 'Maps' cannot be run", id="a name in quotes"),
    pytest.param(
        Named, r"m:app: Named takes arguments; make it in a function: def app\(\): return \[Named\(...\)\]", id="a class with arguments"
    ),
    pytest.param(lambda a, b: None, r"<lambda>\(a, b\) cannot be called with a client, nor without arguments", id="a function of two"),
    pytest.param(lambda: None, "<lambda> returned nothing; it must return controllers or a Manager", id="a function that returns nothing"),
]


@pytest.mark.parametrize(("target", "words"), REFUSED)
async def test_the_error_for_another_value_names_the_accepted_ones(cluster: OwnServer, target: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        await manager_of(target, RunOptions(target="m:app"), cluster.client())


async def test_a_manager_made_on_import_is_refused_with_the_way_out(cluster: OwnServer) -> None:
    client = cluster.client()
    with pytest.raises(ConfigError, match=r"does not know the cluster of this run; make it in a function: def app\(client\)"):
        await manager_of(Manager(client, [Maps()]), RunOptions(target="m:app"), client)


@pytest.mark.parametrize("options", [{"settings": "x.yaml"}, {"namespace": "shop"}, {"leader_election": True}])
async def test_what_only_another_manager_could_heed_is_refused(cluster: OwnServer, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="has no effect on a Manager that m:app makes"):
        await manager_of(later, RunOptions(target="m:app", **options), cluster.client())


def fails() -> None:
    raise RuntimeError("no disk")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        pytest.param(fails, "m:app: fails failed", id="the function"),
        pytest.param(Broken, r"m:app: Broken\(\) failed", id="the class"),
        pytest.param([Maps(), Maps()], "m:app: a manager cannot be made of it", id="two controllers of one name"),
    ],
)
async def test_code_that_fails_is_distinguished_from_a_wrong_command_line(cluster: OwnServer, target: Any, words: str) -> None:
    with pytest.raises(AppError, match=words) as raised:
        await manager_of(target, RunOptions(target="m:app"), cluster.client())
    assert raised.value.__cause__ is not None


async def test_settings_hold_but_for_the_election_and_the_namespace_that_is_named(cluster: OwnServer, tmp_path: Path) -> None:
    file = tmp_path / "manager.yaml"
    file.write_text("workers: {maps: 3}\ngrace: 200\nnamespaces: [a, b]\nleaderElection: {name: x, namespace: shop}\n")
    options = RunOptions(target="m:app", settings=str(file), namespace="default", grace=4.0)
    await cluster.client().create(ConfigMap(metadata=ObjectMeta(name="bad")))
    manager = await manager_of(Maps, options, cluster.client())
    assert manager.elector is None
    assert manager.grace == 4.0
    async with manager:
        assert manager.stats[0].workers == 3
        (informer,) = manager.informers
        assert 'in namespace "default"' in informer.description
    electing = RunOptions(target="m:app", settings=str(file), leader_election=True)
    assert (await manager_of(Maps, electing, cluster.client())).elector is not None


async def test_an_election_needs_settings_that_name_its_lease(cluster: OwnServer) -> None:
    with pytest.raises(ConfigError, match="--leader-election: the settings do not name a Lease; set leaderElection:"):
        await manager_of(Maps, RunOptions(target="m:app", leader_election=True), cluster.client())


@pytest.mark.parametrize(
    ("target", "words"),
    [
        pytest.param(f"{HERE}:Mapps", f"{HERE} has no Mapps; did you mean Maps?", id="a name that is nearly one"),
        pytest.param(f"{HERE}:xyz", f"{HERE} has no xyz; it has Maps, Named, Broken, PartController, ", id="a name that is none"),
        pytest.param(f"{HERE}:HERE.x", "has no x; there is no controller in it", id="an attribute of something else"),
        pytest.param(HERE, f"{HERE}: write MODULE:NAME, where NAME is a controller", id="no name"),
    ],
)
def test_the_error_for_a_missing_name_lists_the_present_ones(target: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        named(target, WANTED)


async def test_a_board_shows_a_manager_before_while_and_after_it_runs(cluster: OwnServer) -> None:
    client = cluster.client()
    await client.create(ConfigMap(metadata=ObjectMeta(name="bad")))
    manager = await manager_of(Maps, RunOptions(target="m:app"), client)
    boards = DashboardSnapshots("m:app", manager)
    before = boards.take(100.0)
    assert (before.state, before.seconds, before.informers) == ("starting", 0.0, ())
    async with manager:
        async with asyncio.timeout(30):
            while not (running := boards.take(102.0)).controllers[0].errors:
                await asyncio.sleep(0.001)
        (row,) = running.controllers
        assert (running.state, running.seconds) == ("running", 2.0)
        assert (row.name, row.failing, row.last_error) == ("maps", "default/bad", "this one is bad")
        assert row.per_second == row.reconciles / 2.0
        (informer,) = running.informers
        assert (informer.synced, informer.why, informer.what) == (True, "", "configmaps in all namespaces")
    assert boards.take(103.0).state == "stopped"


def manifest(folder: Path, text: str) -> Path:
    (folder / "objects.yaml").write_text(text)
    return folder


PART = "{apiVersion: running.kubeloop.example.com/v1, kind: Part, metadata: {name: a}, spec: {size: 2}}"


async def test_an_embedded_server_gets_definitions_first_then_namespaces_and_objects(cluster: OwnServer, tmp_path: Path) -> None:
    client = cluster.client()
    folder = manifest(
        tmp_path, f"kind: List\napiVersion: v1\nitems:\n- {PART}\n---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: bank}}}}"
    )
    created = [
        "namespace/shop created",
        "customresourcedefinition.apiextensions.k8s.io/parts.running.kubeloop.example.com created",
        "namespace/bank created",
        "part.running.kubeloop.example.com/a created",
    ]
    for expected in (created, ["4 objects unchanged"]):  # A new start finds what the one before left.
        assert await install(client, [Part, ConfigMap, Unstructured.for_kind("v1", "Secret")], [folder], "shop") == expected
    assert (await client.get(Part, "a")).spec.size == 2
    assert (await client.get(Namespace, "shop")).metadata.name == "shop"


async def test_an_object_that_manifests_hold_in_two_versions_is_one_line(cluster: OwnServer, tmp_path: Path) -> None:
    target = "{apiVersion: apps/v1, kind: Deployment, name: a}"
    rest = f"kind: HorizontalPodAutoscaler, metadata: {{name: a}}, spec: {{scaleTargetRef: {target}, maxReplicas: 2}}"
    folder = manifest(tmp_path, f"{{apiVersion: autoscaling/v1, {rest}}}\n---\n{{apiVersion: autoscaling/v2, {rest}}}")
    assert await install(cluster.client(), [], [folder], "") == ["horizontalpodautoscaler.autoscaling/a created"]


async def test_a_definition_among_the_manifests_goes_before_that_of_the_class(cluster: OwnServer, tmp_path: Path) -> None:
    client = cluster.client()
    schema = "{openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}"
    names = "{plural: parts, singular: part, kind: Part, shortNames: [pt]}"
    versions = f"[{{name: v1, served: true, storage: true, schema: {schema}}}]"
    spec = f"{{group: running.kubeloop.example.com, scope: Namespaced, names: {names}, versions: {versions}}}"
    name = "parts.running.kubeloop.example.com"
    text = f"{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: {name}}}, spec: {spec}}}"
    assert await install(client, [Part], [manifest(tmp_path, f"{PART}\n---\n{text}")], "") == [
        f"customresourcedefinition.apiextensions.k8s.io/{name} created",
        "part.running.kubeloop.example.com/a created",
    ]
    assert (await client.get(CustomResourceDefinition, name)).spec.names.short_names == ["pt"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: [", "objects.yaml: cannot be read: ", id="a file that is no YAML"),
        pytest.param(
            "a: 1", r'objects.yaml: the object names no kind: it needs "apiVersion" and "kind"', id="a document that is no object"
        ),
        pytest.param("{apiVersion: a.b/v1, kind: X, metadata: {name: x}}", "objects.yaml: X x: .*a.b/v1", id="a kind that is not served"),
        pytest.param(
            "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {}}", "objects.yaml: Pod x: .*containers", id="an invalid object"
        ),
    ],
)
async def test_a_manifest_that_cannot_be_applied_is_named(cluster: OwnServer, tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InstallError, match=words):
        await install(cluster.client(), [], [manifest(tmp_path, text)], "")


def test_of_all_kinds_those_of_the_program_are_custom() -> None:
    assert custom_kinds([ConfigMap, Part, Unstructured.for_kind("a.b/v1", "Foo", plural="foos", namespaced=True)]) == [Part]
