"""Arguments of a wrong type: refused by the call that they were given to, in words that name them and the way out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kubeloop.api.core.v1 import Pod
from kubeloop.cache import ByLabel, Informers, Sorted
from kubeloop.client import Client
from kubeloop.meta import DeadlineError


@pytest.fixture
def informers(api: Client) -> Informers:
    return Informers(api)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"namespace": 5}, "namespace=5: 5 is no name", id="a namespace is text"),
        pytest.param({"namespace": ["shop", 5]}, "5 is no name; give a name, or a list of names", id="each of several namespaces is text"),
        pytest.param({"indexes": "spec.nodeName"}, "has no names; give a name to each", id="indexes have names"),
        pytest.param({"indexes": ["spec.nodeName"]}, "has no names; give a name to each", id="a list of indexes has no names"),
        pytest.param({"indexes": {"node": 5}}, 'index "node" over 5: give a path', id="an index is over a path or a function"),
        pytest.param({"indexes": {"node": Sorted[Any](5)}}, 'index "node" over Sorted', id="so is a sorted one"),  # type: ignore[arg-type]  # the fault
        pytest.param({"paths": "spec.nodeName"}, "give a list: paths=['spec.nodeName']", id="one path is a list too"),
        pytest.param({"transform": 5}, "transform=5 is no function", id="a transform is a function"),
    ],
)
async def test_an_informer_is_refused_with_the_argument_s_name(informers: Informers, options: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        informers.of(Pod, **options)
    assert list(informers) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"namespace": "Not Valid!"}, "namespace='Not Valid!' cannot be a namespace: a lowercase", id="a namespace is a label"),
        pytest.param({"namespace": ["shop", "a.b"]}, "namespace='a.b' cannot be a namespace", id="so is each of several"),
        pytest.param({"labels": "a=("}, "labels='a=(': unable to parse", id="a label selector that cannot be read is named"),
        pytest.param({"field_selector": "spec"}, "field_selector='spec': invalid selector", id="so is a field selector"),
    ],
)
async def test_values_that_cannot_be_are_refused_with_the_argument_s_name(informers: Informers, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        informers.of(Pod, **options)
    assert list(informers) == []


async def test_an_empty_selector_is_the_same_as_none(informers: Informers) -> None:
    assert informers.of(Pod, labels="", field_selector="") is informers.of(Pod, labels={}, field_selector={}) is informers.of(Pod)


@pytest.mark.parametrize("label", ["", "no label=at all"])
async def test_an_index_over_a_label_that_none_can_be_is_refused(informers: Informers, label: str) -> None:
    with pytest.raises(ValueError, match="name part must"):
        informers.of(Pod, indexes={"team": ByLabel(label)})


@pytest.mark.parametrize("what", ["added", "updated", "deleted", "where"])
async def test_a_handler_that_is_no_function_is_refused_and_not_registered(informers: Informers, what: str) -> None:
    pods = informers.of(Pod)
    functions: dict[str, Any] = {what: {"status.phase": "Running"}}
    with pytest.raises(TypeError, match=f"^{what}=.* is no function; give one that takes the "):
        pods.on_event(**functions)
    assert pods.stats.handlers == ()


async def test_the_folder_to_persist_to_may_be_text(api: Client, tmp_path: Path) -> None:
    async with Informers(api, persist=str(tmp_path / "saved")):
        assert (tmp_path / "saved").is_dir()


async def test_who_waits_outside_the_block_is_told_to_enter_it(informers: Informers) -> None:
    informers.of(Pod)
    with pytest.raises(DeadlineError, match=r"nothing runs yet \(enter the block: async with informers\); not synced: pods"):
        await informers.wait_synced(0)
