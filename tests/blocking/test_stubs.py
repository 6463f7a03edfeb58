"""The stub agrees with the asynchronous classes: each change of them requires a new stub."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

from kubeloop import blocking
from kubeloop.blocking.homes import HOMES
from kubeloop.blocking.rules import is_async, public
from kubeloop.blocking.stubs import generated
from kubeloop.blocking.stubs.annotations import Imports, Translator

FOLDER = Path(blocking.__file__).parent


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return generated()


NAMES = ("__init__.pyi", "homes.py")


@pytest.mark.parametrize("name", NAMES)
def test_it_is_generated_from_what_there_is(texts: dict[str, str], name: str) -> None:
    assert set(texts) == set(NAMES)
    assert (FOLDER / name).read_text() == texts[name], "run: python -m kubeloop.blocking.stubs"


FACADES = sorted(
    name for name, home in HOMES.items() if inspect.isclass(behind := getattr(importlib.import_module(home), name)) and is_async(behind)
)


@pytest.mark.parametrize("name", FACADES)
def test_a_facade_has_every_public_method(name: str) -> None:
    behind = getattr(importlib.import_module(HOMES[name]), name)
    facade = getattr(blocking, name)
    methods = {each for each, raw in public(behind).items() if inspect.isroutine(raw) or isinstance(raw, property)}
    assert methods <= set(dir(facade))
    assert not [each for each in methods if inspect.iscoroutinefunction(getattr(facade, each))]


CONFLICT, READING, WATCHES = "kubeloop.client.conflict", "kubeloop.client.verbs.get_list", "kubeloop.client.watches"

CASES = [
    pytest.param("Awaitable[int]", CONFLICT, "int", id="an awaitable becomes its result"),
    pytest.param("Callable[[], Awaitable[T]]", CONFLICT, "Callable[[], T]", id="functions that are awaited are plain ones"),
    pytest.param("AsyncIterator[bytes]", WATCHES, "BlockingIterator[bytes]", id="an iterator"),
    pytest.param("AsyncGenerator[bytes, None]", WATCHES, "BlockingIterator[bytes]", id="a generator"),
    pytest.param("Watch[R] | None", READING, "Watch[R] | None", id="a class that has a facade is its facade"),
    pytest.param("'dict[str, list[R]]'", READING, "dict[str, builtins.list[R]]", id="a builtin that a method hides"),
    pytest.param("Literal['a', 'b']", WATCHES, "Literal['a', 'b']", id="literals are no names"),
]


@pytest.mark.parametrize(("text", "module", "expected"), CASES)
def test_an_annotation(text: str, module: str, expected: str) -> None:
    assert Translator(Imports(), frozenset({"list"})).translate(text, module) == expected


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(LookupError, match="the name Nothing has no known definition"):
        Translator(Imports(), frozenset()).translate("Nothing", "kubeloop.client.conflict")


def test_two_facades_of_one_name_are_an_error() -> None:
    imports = Imports()
    imports.facade(type("Watch", (), {}))
    with pytest.raises(ValueError, match="two classes are named Watch"):
        imports.facade(type("Watch", (), {}))
