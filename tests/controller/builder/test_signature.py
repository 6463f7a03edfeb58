"""How reconcile may be written; each mistake is an error with a hint when the class is defined."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap, Pod
from kubeloop.controller import Channel, Controller, DeclarationError, KeyController, Owns, WatchedKind, to_same_name
from kubeloop.meta import ObjectKey


async def _object(self: Any, obj: ConfigMap) -> None: ...
def _plain(self: Any, obj: ConfigMap) -> None: ...
async def _defaults(self: Any, obj: ConfigMap, more: int = 1, *, other: int = 2) -> None: ...
async def _untyped(self, obj): ...  # type: ignore[no-untyped-def]  # what an untyped program writes
async def _anything(self: Any, *arguments: Any) -> None: ...
async def _key(self: Any, key: ObjectKey) -> None: ...
async def _pod(self: Any, pod: Pod) -> None: ...
async def _none(self: Any) -> None: ...
async def _two(self: Any, obj: ConfigMap, other: int) -> None: ...
async def _named(self: Any, obj: ConfigMap, *, other: int) -> None: ...
async def _nothing() -> None: ...


async def _yields(self: Any, obj: ConfigMap) -> AsyncIterator[int]:
    yield 1


def _generates(self: Any, obj: ConfigMap) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("base", "function"),
    [
        pytest.param(Controller[ConfigMap], _object, id="async with the object"),
        pytest.param(Controller[ConfigMap], _plain, id="plain with the object"),
        pytest.param(Controller[ConfigMap], _defaults, id="more arguments that have defaults"),
        pytest.param(Controller[ConfigMap], _untyped, id="without types"),
        pytest.param(Controller[ConfigMap], _anything, id="any arguments"),
        pytest.param(KeyController[ConfigMap], _key, id="async with the key"),
        pytest.param(KeyController[ConfigMap], _untyped, id="the key without types"),
    ],
)
def test_accepted(base: Any, function: Any) -> None:
    made: Any = type("Right", base.__mro_entries__(()), {"reconcile": function, "__orig_bases__": (base,)})
    assert made._declaration().kind is ConfigMap


@pytest.mark.parametrize(
    ("base", "function", "message"),
    [
        pytest.param(Controller[ConfigMap], _key, "takes an ObjectKey; derive from KeyController", id="a key where the object comes"),
        pytest.param(KeyController[ConfigMap], _object, "takes a ConfigMap; derive from Controller", id="an object where the key comes"),
        pytest.param(
            Controller[ConfigMap], _pod, "is a controller of ConfigMap, but its reconcile takes a Pod", id="another kind than declared"
        ),
        pytest.param(Controller[ConfigMap], _none, "takes no argument", id="no argument"),
        pytest.param(Controller[ConfigMap], _two, r"wants more than one argument \(other\)", id="two arguments"),
        pytest.param(Controller[ConfigMap], _named, r"wants more than one argument \(other\)", id="a second one by name"),
        pytest.param(Controller[ConfigMap], _nothing, "lacks self", id="no self"),
        pytest.param(Controller[ConfigMap], _yields, "yields, so that calling it does nothing", id="an async generator"),
        pytest.param(Controller[ConfigMap], _generates, "yields, so that calling it does nothing", id="a generator"),
        pytest.param(Controller[ConfigMap], staticmethod(_object), "is not a method", id="a static method"),
        pytest.param(Controller[ConfigMap], 5, "is not a method", id="no function"),
    ],
)
def test_refused(base: Any, function: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=f"Wrong.*{message}") as caught:
        type("Wrong", base.__mro_entries__(()), {"reconcile": function, "__orig_bases__": (base,)})
    if "controller of" not in message:
        assert "def reconcile(self, " in str(caught.value), "the text says how to write it"


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        pytest.param({"timeout": -1}, "timeout must be a number of seconds above 0", id="a negative time limit"),
        pytest.param({"timeout": 0}, "timeout must be a number of seconds above 0", id="no time at all"),
        pytest.param({"debounce": -1}, "debounce must be a number of seconds, or 0 for none", id="a negative debounce"),
        pytest.param({"debounce": float("nan")}, "debounce must be a number of seconds", id="a debounce that is no number"),
        pytest.param({"debounce": float("inf")}, "debounce must be a number of seconds", id="a debounce without end"),
        pytest.param({"debounce": "5"}, "debounce must be a number of seconds", id="a debounce in text"),
        pytest.param({"timeout": "5"}, "timeout must be a number of seconds above 0", id="a time limit in text"),
        pytest.param({"workers": True}, "workers must be a number of at least 1", id="workers yes"),
        pytest.param({"workers": "2"}, "workers must be a number of at least 1", id="workers in text"),
        pytest.param({"name": 5}, "name must be text", id="a name that is none"),
        pytest.param({"warm_up": 1}, "warm_up must be True or False", id="a switch that is none"),
        pytest.param({"indexes": {Pod: "spec.nodeName"}}, "indexes of Pod must be as", id="an index without a name"),
        pytest.param({"indexes": {"Pod": {}}}, "which is not a kind", id="an index of no kind"),
        pytest.param({"indexes": ["node"]}, "indexes must be as", id="indexes in a list"),
        pytest.param({"sources": [object()]}, "sources must be a list of Channel", id="a source that is no channel"),
        pytest.param(
            {"watches": [WatchedKind(Pod, to="users")]}, 'maps by "users", which is not a method', id="a method that is not there"
        ),
        pytest.param({"watches": [WatchedKind(Pod, to=5)]}, "maps by 5; give to_owner", id="a mapping that is none"),  # type: ignore[arg-type]
        pytest.param({"watches": [WatchedKind(int, to=to_same_name)]}, "which is not a kind", id="a watch of no kind"),  # type: ignore[type-var]
        pytest.param({"owns": [Owns(int)]}, "which is not a kind", id="an owned type that is no kind"),  # type: ignore[type-var]
        pytest.param({"owns": [Owns(Pod, predicates=(5,))]}, "predicates of owns Pod", id="a predicate that is none"),  # type: ignore[arg-type]
        pytest.param({"metadata_only": True}, "derive from KeyController", id="only metadata where the object is wanted"),
        pytest.param({"ownz": [Pod]}, "a controller cannot declare ownz .it can declare owns, watches", id="a word that is not known"),
    ],
)
def test_declarations_that_are_refused(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=f"Wrong: .*{message}"):

        class Wrong(Controller[ConfigMap], **declared):
            async def reconcile(self, config: ConfigMap) -> None: ...


def test_an_index_of_a_kind_that_is_not_kept_is_refused() -> None:
    class Indexed(Controller[ConfigMap], indexes={Pod: {"node": "spec.nodeName"}}):
        async def reconcile(self, config: ConfigMap) -> None: ...

    with pytest.raises(DeclarationError, match=r"Indexed: indexes names Pod, which it does not cache; .*reads=\[Pod\]"):
        Indexed._declaration()
    Indexed.reads = [Pod]
    assert Indexed._declaration().indexes == {Pod: {"node": "spec.nodeName"}}


def test_sources_may_be_the_instances_own_and_are_checked_too() -> None:
    from kubeloop.controller.runner.runner import Runner

    class FedByChannel(KeyController[ConfigMap]):
        def __init__(self, sources: Any) -> None:
            self.sources = sources

        async def reconcile(self, key: ObjectKey) -> None: ...

    Runner(FedByChannel([Channel(asyncio.Queue())]))
    with pytest.raises(DeclarationError, match="FedByChannel: sources must be a list of Channel"):
        Runner(FedByChannel([5]))
