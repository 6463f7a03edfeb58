"""Mutating hooks asked by whole reviews, without a server: what they may change, and the patch that comes of it."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.codec import decode
from kubeloop.controller.webhooks import Denied, Webhooks
from kubeloop.merge.json_patch import json_patch
from kubeloop.meta import ObjectMeta, Unstructured
from kubeloop.types import JSONObject
from tests.controller.webhooks.foos import Foo, FooSpec
from tests.controller.webhooks.reviews import asked, foo, patch_of, review


async def test_fields_that_the_class_does_not_know_survive_a_mutation() -> None:
    hooks = Webhooks()

    @hooks.mutating(Foo)
    def defaults(foo: Foo) -> None:
        foo.spec.size = 1
        foo.metadata.labels["app"] = "x"
        foo.spec.names.insert(0, "first")

    given = foo(names=["a"], other={"deep": [1, 2.0, None]}, size=None)
    given["metadata"] |= {"creationTimestamp": None, "managedFields": [{"manager": "m"}], "future": True}
    given["status"] = {"n": 1e3}
    response = await asked(hooks, review(given))
    assert response["patchType"] == "JSONPatch"
    expected = json.loads(json.dumps(given))
    expected["spec"] |= {"size": 1, "names": ["first", "a"]}
    expected["metadata"]["labels"] = {"app": "x"}
    assert json_patch(given, patch_of(response)) == expected
    assert {one["path"] for one in patch_of(response)} == {"/spec/size", "/metadata/labels", "/spec/names/0"}


async def test_no_change_is_no_patch() -> None:
    hooks = Webhooks()

    @hooks.mutating(Foo)
    async def defaults(foo: Foo) -> None:
        foo.spec.size = foo.spec.size or 1

    response = await asked(hooks, review(foo(size=7, unknown=None)))
    assert response == {"uid": "u-1", "allowed": True}


async def test_a_mutating_hook_may_return_a_copy() -> None:
    hooks = Webhooks()

    @hooks.mutating(Foo)
    def defaults(foo: Foo) -> Foo:
        return msgspec.structs.replace(foo, spec=FooSpec(size=3))

    assert patch_of(await asked(hooks, review(foo(size=1)))) == [{"op": "replace", "path": "/spec/size", "value": 3}]


async def test_an_object_made_from_nothing_would_lose_fields_and_is_refused() -> None:
    hooks = Webhooks()

    @hooks.mutating(Foo)
    def defaults(foo: Foo) -> Foo:
        return Foo(metadata=ObjectMeta(name="a"))

    assert "TypeError" in (await asked(hooks, review(foo(size=1))))["status"]["message"]


async def test_a_refused_mutation_has_no_patch() -> None:
    hooks = Webhooks()

    @hooks.mutating(Foo)
    def defaults(foo: Foo) -> None:
        foo.spec.size = 1
        raise Denied("no")

    assert "patch" not in await asked(hooks, review(foo()))


async def test_a_kind_without_a_class_is_changed_as_a_tree() -> None:
    hooks = Webhooks()

    @hooks.mutating(Unstructured.for_kind("example.com/v1", "Foo", plural="foos"))
    def defaults(foo: Unstructured) -> None:
        foo["spec"]["x"] = {"a/b": 1}

    assert patch_of(await asked(hooks, review(foo()))) == [{"op": "add", "path": "/spec/x", "value": {"a/b": 1}}]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)
_NAMES = st.lists(st.sampled_from("abc"), max_size=4)
_SIZES = st.none() | st.integers(0, 5)
_LABELS = st.dictionaries(st.sampled_from(["a", "b/c", "~"]), st.sampled_from("xy"))


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(["u", "v/w"]), _VALUES), _NAMES, _NAMES, _SIZES, _SIZES, _LABELS, _LABELS)
async def test_the_patch_brings_the_original_to_what_the_hook_made_of_it(
    unknown: JSONObject,
    names: list[str],
    new_names: list[str],
    size: int | None,
    new_size: int | None,
    labels: dict[str, str],
    new_labels: dict[str, str],
) -> None:
    hooks = Webhooks()

    @hooks.mutating(Foo)
    async def change(foo: Foo) -> None:
        foo.spec.names, foo.spec.size, foo.spec.labels = new_names, new_size, new_labels

    given = foo(names=names, labels=labels, **unknown, **({} if size is None else {"size": size}))
    stored = json_patch(given, patch_of(await asked(hooks, review(given))))
    read = decode(Foo, msgspec.json.encode(stored))
    assert (read.spec.names, read.spec.size, read.spec.labels) == (new_names, new_size, new_labels)
    assert {name: stored["spec"][name] for name in unknown} == unknown
