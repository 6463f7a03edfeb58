"""Arguments of a wrong type: refused by the call that they were given to, in words that name them and the way out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kubeloop.api.core.v1 import Pod
from kubeloop.cache import ByLabel, InformerFactory, MulticlusterInformerFactory, Sorted
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import DeadlineError


@pytest.fixture
def informers(api: Client) -> InformerFactory:
    return InformerFactory(api)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"namespace": 5}, "namespace=5: 5 is not a name", id="a namespace is text"),
        pytest.param(
            {"namespace": ["shop", 5]}, "5 is not a name; give a name, or a list of names", id="each of several namespaces is text"
        ),
        pytest.param({"indexes": "spec.nodeName"}, "has no names; give a name to each", id="indexes have names"),
        pytest.param({"indexes": ["spec.nodeName"]}, "has no names; give a name to each", id="a list of indexes has no names"),
        pytest.param({"indexes": {"node": 5}}, 'index "node" over 5: give a path', id="an index is over a path or a function"),
        pytest.param({"indexes": {"node": Sorted[Any](5)}}, 'index "node" over a Sorted', id="so is a sorted one"),  # type: ignore[arg-type]  # the fault
        pytest.param({"paths": "spec.nodeName"}, "give a list: paths=['spec.nodeName']", id="one path is a list too"),
        pytest.param({"paths": 5}, 'paths=5 is not a list of paths; give one: paths=["spec.nodeName"]', id="a number is no list of paths"),
        pytest.param({"paths": [5]}, "paths: 5 is not a path; give paths as text", id="each path is text"),
        pytest.param({"fields": "spec.nodeName"}, "give a list: fields=['spec.nodeName'] (a selector is", id="one field is a list too"),
        pytest.param({"fields": [5]}, "fields: 5 is not a path; give paths as text", id="each field is text"),
        pytest.param({"transform": 5}, "transform=5 is not a function", id="a transform is a function"),
        pytest.param({"page_size": "a"}, "page_size='a' is not a whole number; give", id="a page size is a number"),
        pytest.param(
            {"queue": "fifo"}, "queue='fifo' cannot create a queue; give a class: queue=DeltaFifo", id="a queue is made by a class"
        ),
        pytest.param({"label_selector": 5}, "label_selector=5 is not a label selector; give one such as", id="labels are a selector"),
        pytest.param({"field_selector": 5}, "field_selector=5 is not a field selector; give one such as", id="so are fields"),
        pytest.param({"resync": "5"}, "resync='5' is not a number; give seconds", id="a resync period is a number"),
        pytest.param({"managed_fields": "no"}, "managed_fields='no' is neither True nor False", id="a flag is True or False"),
    ],
)
async def test_an_informer_is_refused_with_the_argument_s_name(informers: InformerFactory, options: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        informers.for_kind(Pod, **options)
    assert list(informers) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"namespace": "Not Valid!"}, "namespace='Not Valid!' cannot be a namespace: a lowercase", id="a namespace is a label"),
        pytest.param({"namespace": ["shop", "a.b"]}, "namespace='a.b' cannot be a namespace", id="so is each of several"),
        pytest.param({"resync": -1}, "resync=-1 is not a period; give seconds", id="a resync period is not negative"),
        pytest.param({"page_size": -1}, "page_size=-1 is negative; give", id="nor is a page size"),
        pytest.param(
            {"label_selector": "a=("}, "label_selector='a=(': unable to parse", id="a label selector that cannot be read is named"
        ),
        pytest.param({"field_selector": "spec"}, "field_selector='spec': invalid selector", id="so is a field selector"),
    ],
)
async def test_values_that_cannot_be_are_refused_with_the_argument_s_name(
    informers: InformerFactory, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        informers.for_kind(Pod, **options)
    assert list(informers) == []


@pytest.mark.parametrize("call", ["for_kind", "metadata"])
async def test_a_kind_is_a_class_and_no_object_of_it(informers: InformerFactory, call: str) -> None:
    wrong: Any = Pod()
    with pytest.raises(TypeError, match=rf"^{call}\(\) was given a Pod object; give the class: {call}\(Pod\)$"):
        getattr(informers, call)(wrong)
    with pytest.raises(TypeError, match=rf"^{call}\(\) was given 'pods', which is not a class of objects; give one, such as Pod"):
        getattr(informers, call)("pods")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        pytest.param({"resync": -1}, ValueError, "resync=-1 is not a period", id="a period is not negative"),
        pytest.param({"resync": float("nan")}, ValueError, "resync=nan is not a period", id="nor no number at all"),
        pytest.param({"resync": "5"}, TypeError, "resync='5' is not a number; give seconds: resync=30", id="a period is a number"),
        pytest.param({"persist": 5}, TypeError, "persist=5 is not a folder; give a path", id="a folder is a path"),
        pytest.param({"persist_every": "5"}, TypeError, "persist_every='5' is not a number", id="the time between two saves is a number"),
        pytest.param({"policy": {}}, TypeError, "policy={} is not a policy; give a WatchPolicy(...)", id="a policy is a policy"),
        pytest.param({"cluster": 5}, TypeError, "cluster=5 is not text; give a name", id="a cluster's name is text"),
        pytest.param({"read_your_writes": 1}, TypeError, "read_your_writes=1 is neither True nor False", id="a flag is True or False"),
    ],
)
async def test_informers_are_refused_with_the_argument_s_name(
    api: Client, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        InformerFactory(api, **options)


@pytest.mark.parametrize(
    ("clients", "text"),
    [
        pytest.param({"a": "x"}, "clients['a'] is a str, not a Client; give one: ", id="each of those with a name"),
        pytest.param(["x"], "clients[0] is a str, not a Client; give one: ", id="each of a list"),
        pytest.param("x", "clients is a str; give clients by name: ", id="a text"),
        pytest.param(5, "clients is a int; give clients by name: ", id="a number"),
    ],
)
async def test_an_argument_that_is_no_client_is_named(clients: Any, text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        MulticlusterInformerFactory(clients)
    with pytest.raises(TypeError, match=r"^client is a .*, not a Client; give one"):
        InformerFactory(clients)


async def test_an_empty_selector_is_the_same_as_none(informers: InformerFactory) -> None:
    assert (
        informers.for_kind(Pod, label_selector="", field_selector="", namespace=ALL_NAMESPACES)
        is informers.for_kind(Pod, label_selector={}, field_selector={}, namespace=ALL_NAMESPACES)
        is informers.for_kind(Pod, namespace=ALL_NAMESPACES)
    )


@pytest.mark.parametrize("label", ["", "no label=at all"])
async def test_an_index_over_a_label_that_none_can_be_is_refused(informers: InformerFactory, label: str) -> None:
    with pytest.raises(ValueError, match="name part must"):
        informers.for_kind(Pod, indexes={"team": ByLabel(label)}, namespace=ALL_NAMESPACES)


@pytest.mark.parametrize("handler", ["added", "updated", "deleted", "predicate"])
async def test_a_handler_that_is_no_function_is_refused_and_not_registered(informers: InformerFactory, handler: str) -> None:
    pods = informers.for_kind(Pod, namespace=ALL_NAMESPACES)
    functions: dict[str, Any] = {handler: {"status.phase": "Running"}}
    with pytest.raises(TypeError, match=f"^{handler}=.* is not a function; give a function of the "):
        pods.on_event(**functions)
    assert pods.stats.handlers == ()


async def test_the_folder_to_persist_to_may_be_text(api: Client, tmp_path: Path) -> None:
    async with InformerFactory(api, persist=str(tmp_path / "saved")):
        assert (tmp_path / "saved").is_dir()


async def test_waiting_outside_the_block_is_an_error_that_says_to_enter_it(informers: InformerFactory) -> None:
    informers.for_kind(Pod, namespace=ALL_NAMESPACES)
    with pytest.raises(DeadlineError, match=r"nothing runs yet \(enter the block: async with informers\); not synced: pods"):
        await informers.wait_synced(0)
