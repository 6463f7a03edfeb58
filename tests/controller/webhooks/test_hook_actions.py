"""The test kit: a hook asked without a server, as a user's tests do it; and patches of configurations."""

from __future__ import annotations

import asyncio
import base64

import pytest

from kubeloop.controller.webhooks import AdmissionRequest, AdmissionUser, Denied, Warnings, Webhooks
from kubeloop.controller.webhooks.session import bundle_patch, conversion_patch, definition_bundle_patch
from kubeloop.merge.json_patch import json_patch
from kubeloop.meta import ObjectMeta
from kubeloop.types import JSONObject
from tests.controller.webhooks.foos import Foo, FooSpec, FooSpecV2, FooV2


async def test_a_hook_is_asked_by_its_function_or_its_name() -> None:
    hooks = Webhooks()

    @hooks.mutating(Foo)
    def defaults(foo: Foo) -> None:
        foo.spec.size = foo.spec.size or 1

    given = Foo(metadata=ObjectMeta(name="a"))
    by_function = await hooks.review(defaults, given)
    assert by_function.allowed
    assert by_function.object is not None
    assert by_function.object.spec.size == 1
    assert given.spec.size is None
    by_name = await hooks.review("defaults.foos.example.com", given)
    assert by_name.patch == by_function.patch == [{"op": "add", "path": "/spec/size", "value": 1}]


async def test_a_refusal_names_its_fields() -> None:
    hooks = Webhooks()

    @hooks.validating(Foo, operations=["UPDATE"])
    async def check(foo: Foo, request: AdmissionRequest[Foo]) -> Warnings | None:
        assert request.old is not None
        if foo.spec.size != request.old.spec.size:
            raise Denied("cannot be changed", field="spec.size")
        return Warnings(f"hello {request.user.username}")

    small, large = Foo(spec=FooSpec(size=1)), Foo(spec=FooSpec(size=2))
    refused = await hooks.review(check, large, old=small)
    assert (refused.allowed, refused.object, refused.fields) == (False, None, ("spec.size",))
    assert "cannot be changed" in refused.message
    allowed = await hooks.review(check, small, old=small, user=AdmissionUser("ann"))
    assert (allowed.allowed, allowed.warnings, allowed.message) == (True, ("hello ann",), "")


async def test_an_update_of_an_object_that_was_read_is_from_what_was_read() -> None:
    hooks = Webhooks()

    @hooks.validating(Foo, operations=["UPDATE"])
    async def check(foo: Foo, request: AdmissionRequest[Foo]) -> None:
        assert request.old is not None
        assert (request.old.spec.size, foo.spec.size) == (1, 2)

    read = Foo.from_dict({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"}, "spec": {"size": 1}})
    read.spec.size = 2
    assert (await hooks.review(check, read)).message == ""


async def test_a_delete_stores_nothing() -> None:
    hooks = Webhooks()

    @hooks.validating(Foo, operations=["DELETE"])
    async def check(foo: Foo, request: AdmissionRequest[Foo]) -> None:
        request.audit("dry", str(request.dry_run))

    answer = await hooks.review(check, Foo(), dry_run=True)
    assert (answer.allowed, answer.object, answer.audit_annotations) == (True, None, {"dry": "True"})


async def test_the_hooks_own_timeout_ends_it() -> None:
    hooks = Webhooks()

    @hooks.validating(Foo)
    async def check(foo: Foo) -> None:
        await asyncio.Event().wait()

    answer = await hooks.review(check, Foo(), timeout=0.01)
    assert answer.status is not None
    assert answer.status.code == 504


def test_converters_are_called_directly() -> None:
    hooks = Webhooks()

    @hooks.conversion(Foo, FooV2)
    def up(foo: Foo) -> FooV2:
        return FooV2(spec=FooSpecV2(count=foo.spec.size))

    made = hooks.convert(Foo(metadata=ObjectMeta(name="a"), spec=FooSpec(size=3)), FooV2)
    assert (made.metadata.name, made.spec.count) == ("a", 3)


BUNDLE = base64.b64encode(b"new").decode()


def test_every_webhook_of_a_configuration_gets_the_bundle() -> None:
    configuration = {
        "webhooks": [
            {"name": "a", "clientConfig": {"url": "https://x"}},
            {"name": "b", "clientConfig": {"url": "https://x", "caBundle": "b2xk"}},
            {"name": "c", "clientConfig": {"url": "https://x", "caBundle": BUNDLE}},
        ]
    }
    patch = bundle_patch(configuration, b"new")
    assert [one["path"] for one in patch if one["op"] == "add"] == [
        "/webhooks/0/clientConfig/caBundle",
        "/webhooks/1/clientConfig/caBundle",
    ]
    patched = json_patch(configuration, patch)
    assert {one["clientConfig"]["caBundle"] for one in patched["webhooks"]} == {BUNDLE}
    assert bundle_patch(patched, b"new") == []


CONVERSION: JSONObject = {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://x", "caBundle": BUNDLE}}}

DEFINITIONS = [
    pytest.param({}, False, id="a definition that is not converted is left alone"),
    pytest.param({"conversion": {"strategy": "None"}}, False, id="so is one without a webhook"),
    pytest.param({"conversion": CONVERSION}, False, id="a definition that trusts the bundle already is unchanged"),
    pytest.param({"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "x"}}}}, True, id="a bundle that is missing"),
]


@pytest.mark.parametrize(("spec", "patched"), DEFINITIONS)
def test_the_bundle_of_a_definition(spec: JSONObject, patched: bool) -> None:
    patch = definition_bundle_patch({"spec": spec}, b"new")
    assert bool(patch) is patched
    if patched:
        made = json_patch({"spec": spec}, patch)
        assert made["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] == BUNDLE


def test_a_definition_is_converted_as_wanted_and_patched_once() -> None:
    definition: JSONObject = {"spec": {"conversion": {"strategy": "None"}}}
    made = json_patch(definition, conversion_patch(definition, CONVERSION))
    assert made["spec"]["conversion"] == CONVERSION
    assert conversion_patch(made, CONVERSION) == []


def test_a_bundle_that_another_writer_filled_in_stays() -> None:
    """cert-manager's injector and we would otherwise overwrite each other without an end."""
    wanted: JSONObject = {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://x"}}}
    assert conversion_patch({"spec": {"conversion": CONVERSION}}, wanted) == []
    moved: JSONObject = {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://y"}}}
    (operation,) = conversion_patch({"spec": {"conversion": CONVERSION}}, moved)
    assert operation["value"]["webhook"]["clientConfig"] == {"url": "https://y", "caBundle": BUNDLE}
