"""Listers: their questions, their answers, and what they refuse."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap, Namespace
from kubeloop.cache import ByLabel, Informer, InformerFactory, Lister, OutsideScope, Sorted, UnknownIndex, UnreadPath
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import DecodeError, ObjectKey, ObjectMeta, Selector, Unstructured, parse_label_selector
from kubeloop.timing import FakeClock
from tests.cache.handlers.test_handlers import informers_of
from tests.cache.own_world import World, document
from tests.cache.source import Source, until


@pytest.fixture
def world() -> World:
    world = World()
    world.listed(
        [
            document("a", "u1", "1", {"app": "web", "tier": "front"}, x="1"),
            document("b", "u2", "2", {"app": "web", "tier": "back"}, x="2"),
            document("c", "u3", "3", {"app": "db"}, x="2"),
            document("d", "u4", "4"),
        ],
        "9",
    )
    return world


def names(objects: list[Any]) -> str:
    return "".join(sorted(each.name if hasattr(each, "name") else each.metadata.name for each in objects))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({}, "abcd", id="everything"),
        pytest.param({"namespace": "default"}, "abcd", id="a namespace"),
        pytest.param({"namespace": "elsewhere"}, "", id="an empty namespace"),
        pytest.param({"label_selector": "app=web,tier!=back"}, "a", id="a selector as kubectl takes it"),
        pytest.param({"label_selector": {"app": "web"}}, "ab", id="equal pairs"),
        pytest.param({"label_selector": parse_label_selector("app in (web,db)")}, "abc", id="a parsed selector"),
        pytest.param({"label_selector": Selector()}, "abcd", id="a selector that selects everything returns all"),
        pytest.param({"label_selector": Selector(nothing=True)}, "", id="a selector that selects nothing returns none"),
        pytest.param({"label_selector": "!app"}, "d", id="a label that is not there"),
        pytest.param({"field_selector": {"data.x": "2"}}, "bc", id="a field that is indexed [S226]"),
        pytest.param({"field_selector": {"data.x": "2", "metadata.name": "c"}}, "c", id="several fields must all match [S226]"),
        pytest.param({"field_selector": {"data.x": "2", "metadata.labels.app": "web"}}, "b", id="a label as a field"),
        pytest.param({"field_selector": {"data.x": None}}, "d", id="a field that is absent"),
        pytest.param({"field_selector": {"data.x": ""}}, "d", id="absent and empty are one"),
        pytest.param({"field_selector": lambda head: head.resource_version > "2"}, "cd", id="a predicate of the head"),
        pytest.param({"label_selector": "app=web", "field_selector": {"data.x": "2"}}, "b", id="labels and fields"),
        pytest.param({"label_selector": "tier=front"}, "a", id="a label that is indexed"),
        pytest.param({"label_selector": "tier=front", "namespace": "elsewhere"}, "", id="an indexed label, of a namespace"),
        pytest.param({"field_selector": {"data.x": "2"}, "namespace": "elsewhere"}, "", id="an indexed field, of a namespace"),
    ],
)
async def test_all_ways_to_ask_for_many_find(world: World, asked: dict[str, Any], expected: str) -> None:
    lister = world.lister
    assert names(lister.heads(**asked)) == expected
    assert names(lister.list(**asked)) == expected
    assert names(list(lister.each(**asked))) == expected
    assert names([each async for each in lister.stream(**asked)]) == expected
    assert names([each async for each in lister.stream_heads(**asked)]) == expected


def test_values_fields_ranges_and_keys(world: World) -> None:
    lister = world.lister
    assert lister.values("data.x") == ["1", "2", "2", None]
    assert lister.values("metadata.name", label_selector="app=web") == ["a", "b"]
    assert lister.values('metadata.labels["app"]') == ["web", "web", "db", None]
    assert names(lister.by_field("data.x", "2")) == "bc"
    assert [each.metadata.name for each in lister.range("sorted", "2")] == ["b", "c"]
    assert [each.metadata.name for each in lister.range("sorted", reverse=True, limit=2)] == ["c", "b"]
    found = lister.by_key(ObjectKey("any", "default", "a"))
    assert found is not None
    assert found.data == {"x": "1"}
    assert lister.get("absent", "default") is None
    assert lister.resource_version == "9"


@pytest.mark.parametrize(
    ("ask", "error", "text"),
    [
        pytest.param(
            lambda lister: lister.by_field("spec.nodeName", "n1"),
            UnreadPath,
            r'path "spec.nodeName" is not read by this informer \(besides metadata it reads: data.x\); '
            r'give it to informers.for_kind\(..., paths=\["spec.nodeName"\]\)',
            id="a path that heads do not carry, and how to add it",
        ),
        pytest.param(lambda lister: lister.values("spec.nodeName"), UnreadPath, "is not read", id="values of such a path"),
        pytest.param(lambda lister: lister.by_index("nod", "n1"), UnknownIndex, "there are: data, sorted, tier", id="an unknown index"),
        pytest.param(lambda lister: lister.range("data"), UnknownIndex, "has no order", id="a range of an index without order"),
        pytest.param(lambda lister: lister.heads(label_selector="a=b=c"), ValueError, "found '='", id="a malformed selector"),
        pytest.param(lambda lister: lister.get("a"), ValueError, "a namespace is needed", id="a name without a namespace"),
        pytest.param(lambda lister: lister.list(continue_token="x"), TypeError, "continue_token", id="a continue token [S224]"),
    ],
)
def test_a_question_is_refused(world: World, ask: Callable[[Lister[ConfigMap]], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ask(world.lister)


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        pytest.param(lambda lister: lister.list(label_selector=5), "label_selector=5 is not a selector", id="labels are a selector"),
        pytest.param(
            lambda lister: lister.each(label_selector=["app"]),
            "label_selector=a list of 1 item is not a selector",
            id="a list of labels is none",
        ),
        pytest.param(
            lambda lister: lister.list(field_selector=5), "field_selector=5 selects nothing", id="field_selector says what must hold"
        ),
        pytest.param(
            lambda lister: lister.list(field_selector={"data.x": ["1"]}),
            '"data.x" with a list of 1 item: give one text',
            id="a field has one value",
        ),
        pytest.param(lambda lister: lister.list(["ns"]), "namespace=a list of 1 item is not a name", id="a list asks for one namespace"),
        pytest.param(lambda lister: lister.heads(5, label_selector="app"), "namespace=5 is not a name", id="a namespace is text"),
        pytest.param(lambda lister: lister.by_key("default/a"), "key='default/a' is not an ObjectKey", id="a key is no text"),
        pytest.param(lambda lister: lister.by_index("data", None), 'value=None of index "data"', id="None is in no index"),
        pytest.param(lambda lister: lister.by_index("data", ["x"]), "value=a list of 1 item of", id="an index takes one value"),
        pytest.param(lambda lister: lister.by_index(["data"], "1"), "name=a list of 1 item is not an index", id="an index has a name"),
        pytest.param(lambda lister: lister.changed_since(0), "version=0 is not text", id="a version is text"),
        pytest.param(lambda lister: lister.range("sorted", limit="1"), "limit='1' is not a number", id="a limit is a number"),
        pytest.param(lambda lister: lister.range("sorted", ["1"]), "low=a list of 1 item is not a bound", id="a bound is a scalar"),
        pytest.param(
            lambda lister: lister.range("sorted", high=5), 'index "sorted" has texts: nothing in it compares with 5', id="a bound compares"
        ),
    ],
)
def test_an_argument_of_a_wrong_type_is_refused_with_its_name(world: World, ask: Callable[[Any], object], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        ask(world.lister)


async def test_fresh_takes_versions_as_text(world: World) -> None:
    lister: Any = world.lister
    with pytest.raises(TypeError, match="min_resource_version=1 is not text"):
        await lister.wait_fresh(1)


def test_a_range_that_could_hold_something_and_does_not_is_empty_and_own_writes_count() -> None:
    world = World()
    assert world.lister.heads_in_range("sorted", 5) == []
    world.listed([], "9")
    world.wrote(document("a", "u1", "10", x="1"), "create")
    assert world.lister.heads_in_range("sorted", "7") == []
    with pytest.raises(TypeError, match="has texts"):
        world.lister.heads_in_range("sorted", 5)


def test_a_cached_read_returns_an_object_of_the_callers_own_S223(world: World) -> None:
    mine = world.lister.get("a", "default")
    assert mine is not None
    mine.data["x"] = mine.metadata.labels["app"] = "changed"
    again, head = world.lister.get("a", "default"), world.lister.head("a", "default")
    assert again is not None
    assert head is not None
    assert (again.data["x"], again.metadata.labels["app"], head.labels["app"]) == ("1", "web", "web")
    with pytest.raises(TypeError):
        head.labels["app"] = "x"  # type: ignore[index]  # it must not work


# ----------------------------------------------------------------------------------------------------------------------- scope


async def test_a_read_outside_the_scope_is_an_error_and_not_an_empty_answer_S224(source: Source, api: Client, clock: FakeClock) -> None:
    async with informers_of(api, clock) as informers:
        one = informers.for_kind(ConfigMap, namespace="default")
        two = informers.for_kind(ConfigMap, namespace=["b", "a"])
        asked: list[Callable[[], object]] = [
            lambda: one.lister.get("x", "other"),
            lambda: one.lister.heads("other"),
            lambda: two.lister.list("default"),
            lambda: two.lister.values("metadata.name", "default"),
        ]
        for ask in asked:
            with pytest.raises(OutsideScope, match=r'this informer watches ConfigMap objects of namespace ("default"|"a", "b") only'):
                ask()
        with pytest.raises(OutsideScope):
            _ = [each async for each in two.lister.stream("default")]
        assert two.lister.list("a") == []
        with pytest.raises(ValueError, match="this informer watches a, b"):
            two.lister.get("x")


async def test_each_informer_has_the_scope_that_it_was_asked_for_and_no_default_stands_behind_it_S225(
    source: Source, api: Client, clock: FakeClock
) -> None:
    source.put("a", label_app="web")
    async with informers_of(api, clock) as informers:
        everything = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        selected = informers.for_kind(ConfigMap, label_selector="app=db", namespace=ALL_NAMESPACES)
        of_one = informers.for_kind(ConfigMap, namespace="default", field_selector="metadata.name=a")
        await until(lambda: len(source.requests) >= 2)
        assert len({id(each) for each in (everything, selected, of_one)}) == 3
        queries = {(query.get("labelSelector", ""), query.get("fieldSelector", "")) for _, query in source.requests}
        assert queries <= {("", ""), ("app=db", ""), ("", "metadata.name=a")}
        assert everything.scope.namespaces == ()


async def test_equal_requests_get_the_same_informer_and_kinds_without_a_class_have_their_own_G99(
    source: Source, api: Client, clock: FakeClock
) -> None:
    source.put("a", label_app="web")
    informers = informers_of(api, clock)
    typed = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    kind = Unstructured.for_kind("v1", "ConfigMap", plural="configmaps", namespaced=True)
    dynamic = informers.for_kind(kind, label_selector="app=web", namespace=ALL_NAMESPACES)
    assert informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES) is typed
    assert informers.for_kind(kind, label_selector={"app": "web"}, namespace=ALL_NAMESPACES) is dynamic
    other: Informer[Any] = informers.for_kind(kind, namespace="default", label_selector="app=web")
    assert other is not dynamic
    async with informers:
        await until(lambda: any(query.get("labelSelector") == "app=web" for _, query in source.requests))


@pytest.mark.server
async def test_fields_of_cluster_scoped_kinds_are_found_too_S226(client: Client, namespace: str) -> None:
    async with InformerFactory(client) as informers:
        namespaces = informers.for_kind(Namespace, indexes={"phase": "status.phase", "name": ByLabel("kubernetes.io/metadata.name")})
        await informers.wait_synced(10)
        [found] = namespaces.lister.list(field_selector={"status.phase": "Active", "metadata.name": namespace})
        assert found.metadata.name == namespace
        assert namespaces.lister.get(namespace) == found
        assert names(namespaces.lister.heads(label_selector={"kubernetes.io/metadata.name": namespace})) == names([found])


@pytest.mark.server
async def test_an_index_is_used_in_order_and_by_label_on_a_server(client: Client, namespace: str) -> None:
    async with InformerFactory(client) as informers:
        maps = informers.for_kind(
            ConfigMap, namespace=namespace, label_selector="app", indexes={"x": Sorted("data.x"), "app": ByLabel("app")}
        )
        await informers.wait_synced(10)
        for x in "312":
            await client.create(ConfigMap(metadata=ObjectMeta(name=f"m{x}", labels={"app": f"a{x}"}), data={"x": x}))
        assert [each.metadata.name for each in maps.lister.range("x", "2")] == ["m2", "m3"]
        assert names(maps.lister.list(label_selector="app=a1")) == "m1"
        assert sorted(maps.lister.index_values("app")) == ["a1", "a2", "a3"]


# ----------------------------------------------------------------------------------------------- objects that do not fit their type


async def test_an_object_that_does_not_fit_its_type_is_left_out_of_lists_reported_once_and_readable_as_unstructured(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    odd = document("odd", "u9", "10", x="2")
    odd["data"] = {"x": ["no", "text"]}
    world.changed(odd)
    lister = world.lister
    with caplog.at_level(logging.ERROR, "kubeloop.cache"):
        assert names(lister.list()) == names(list(lister.each())) == "abcd"
        assert names([each async for each in lister.stream()]) == "abcd"
        with pytest.raises(DecodeError, match='ConfigMap "default/odd": data'):
            lister.get("odd", "default")
    assert len(caplog.records) == 1
    assert 'ConfigMap "default/odd": data' in caplog.text
    assert len(lister.heads()) == len(lister) == 5
    tree = lister.unstructured("odd", "default")
    assert tree is not None
    assert tree["data"] == {"x": ["no", "text"]}
    odd["metadata"]["resourceVersion"] = "11"
    world.changed(odd)
    assert names(lister.list()) == "abcd"
    assert len(caplog.records) == 2, "another state of it is reported once more"


# --------------------------------------------------------------------------------------------------------------- other threads


def test_threads_read_while_the_cache_changes_and_see_no_moment_that_never_was() -> None:
    world = World()
    pairs = [(f"a{number}", f"b{number}") for number in range(20)]
    world.listed([document(name, name, "1", x="0") for pair in pairs for name in pair], "1")
    stop = threading.Event()
    wrong: list[str] = []

    def read() -> None:
        newest: dict[str, int] = {}
        while not stop.is_set():
            heads = world.lister.heads()
            if len(heads) != 40 or len(world.lister.heads_by_index("data", "0")) > 40:
                wrong.append(f"{len(heads)} objects")
            for head in heads:
                if int(head.resource_version) < newest.get(head.name, 0):
                    wrong.append(f"{head.name} went back to {head.resource_version}")
                newest[head.name] = int(head.resource_version)
            world.lister.list(label_selector="app=web", field_selector={"data.x": "0"})
            world.lister.get("a0", "default")
            world.lister.index_values("data")

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    version = 1
    for _ in range(20):
        for pair in pairs:
            news = [document(name, name, str(version + number), x=str(version % 3)) for number, name in enumerate(pair, 1)]
            version += 2
            for new in news:
                world.wrote(new)
            for new in news:
                world.changed(new)
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []
