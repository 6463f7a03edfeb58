"""Admission hooks asked by whole reviews, without a server: what they may do, and what becomes of what they do wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.controller.webhooks import AdmissionRequest, AdmissionUser, Denied, ReviewMalformed, Warnings, Webhooks
from kubeloop.meta import ApiError, NotFound, Unstructured
from kubeloop.meta.field_error import invalid, required
from kubeloop.meta.status import Status, StatusDetails
from kubeloop.types import JSONObject
from tests.controller.webhooks.foos import Foo
from tests.controller.webhooks.reviews import asked, foo, review


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_review_is_answered_in_its_version_with_its_uid(version: str) -> None:
    hooks = Webhooks()

    @hooks.validating(Foo)
    def check(foo: Foo) -> None:
        """Allows everything."""

    answer = json.loads((await hooks.answer("/validate/check.foos.example.com", review(foo(size=1), version=version))).body)
    assert answer == {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True},
    }


async def test_a_hook_sees_the_whole_request_typed() -> None:
    hooks = Webhooks()
    seen: list[AdmissionRequest[Foo]] = []

    @hooks.validating(Foo, operations=["UPDATE"], subresource="status")
    async def check(foo: Foo, request: AdmissionRequest[Foo]) -> None:
        seen.append(request)
        assert foo is request.object

    body = review(
        foo(size=2),
        operation="UPDATE",
        old=foo(size=1),
        subResource="status",
        requestKind={"group": "example.com", "version": "v2", "kind": "Foo"},
        requestResource={"group": "example.com", "version": "v2", "resource": "foos"},
        requestSubResource="status",
        dryRun=True,
        options={"kind": "UpdateOptions", "fieldManager": "me"},
        userInfo={"username": "ann", "uid": "7", "groups": ["devs"], "extra": {"a": ["b"]}},
        unknownField=1,
    )
    assert (await asked(hooks, body))["allowed"]
    request = seen[0]
    assert request.object is not None
    assert request.old is not None
    assert (request.object.spec.size, request.old.spec.size) == (2, 1)
    assert (request.operation, request.subresource, request.dry_run, request.name, request.namespace) == (
        "UPDATE",
        "status",
        True,
        "a",
        "shop",
    )
    assert request.user == AdmissionUser("ann", "7", ("devs",), {"a": ["b"]})
    assert request.options["fieldManager"] == "me"
    assert str(request.resource) == str(hooks.hook(check).gvr)
    assert request.asked_kind is not None
    assert request.asked_kind.version == "v2"


async def test_a_delete_gives_the_object_that_goes() -> None:
    hooks = Webhooks()

    @hooks.validating(Foo, operations=["DELETE"])
    def keep(foo: Foo, request: AdmissionRequest[Foo]) -> None:
        assert request.object is None
        raise Denied(f"size {foo.spec.size} stays")

    response = await asked(hooks, review(None, operation="DELETE", old=foo(size=3)))
    assert response["status"]["message"] == "size 3 stays"


async def test_connect_gives_the_options_of_the_connection() -> None:
    hooks = Webhooks()
    options = Unstructured.for_kind("example.com/v1", "FooExecOptions")

    @hooks.validating(Foo, body=options, operations=["CONNECT"], subresource="exec")
    def check(options: Unstructured) -> None:
        if options["command"] == ["rm"]:
            raise Denied("not that")

    body = review(
        {"apiVersion": "example.com/v1", "kind": "FooExecOptions", "command": ["rm"]},
        operation="CONNECT",
        kind="FooExecOptions",
        subResource="exec",
    )
    assert (await asked(hooks, body))["status"]["message"] == "not that"


async def test_a_class_has_a_method_for_each_operation() -> None:
    hooks = Webhooks()

    @hooks.validating(Foo).methods
    class FooRules:
        def create(self, foo: Foo) -> None:
            raise Denied("no new ones")

        async def update(self, foo: Foo, request: AdmissionRequest[Foo]) -> Warnings:
            return Warnings("changed by " + request.user.username)

    hook = hooks.hook(FooRules)
    assert (hook.name, hook.operations) == ("foo-rules.foos.example.com", ("CREATE", "UPDATE"))
    assert (await asked(hooks, review(foo())))["status"]["message"] == "no new ones"
    assert (await asked(hooks, review(foo(), operation="UPDATE", old=foo())))["warnings"] == ["changed by ann"]


async def test_warnings_and_audit_annotations_go_with_any_answer() -> None:
    hooks = Webhooks()

    @hooks.validating(Foo)
    def check(foo: Foo, request: AdmissionRequest[Foo]) -> Warnings:
        request.warn("first")
        request.audit("seen", "yes")
        if foo.spec.size == 9:
            raise Denied("too large")
        return Warnings("second", "third")

    allowed = await asked(hooks, review(foo()))
    assert (allowed["warnings"], allowed["auditAnnotations"]) == (["first", "second", "third"], {"seen": "yes"})
    refused = await asked(hooks, review(foo(size=9)))
    assert (refused["allowed"], refused["warnings"], refused["auditAnnotations"]) == (False, ["first"], {"seen": "yes"})


_NOT_FOUND = Status(message='secrets "s" not found', reason="NotFound", code=404, details=StatusDetails(name="s", kind="secrets"))

REFUSALS = [
    pytest.param(Denied("no"), {"message": "no", "reason": "Forbidden", "code": 403}, id="a refusal without a field is Forbidden"),
    pytest.param(Denied("no", code=409, reason="Conflict"), {"message": "no", "reason": "Conflict", "code": 409}, id="a code of one's own"),
    pytest.param(
        Denied("at most 5", field="spec.size", value=9),
        {
            "message": 'Foo.example.com "a" is invalid: spec.size: Invalid value: 9: at most 5',
            "reason": "Invalid",
            "code": 422,
            "details": {
                "name": "a",
                "group": "example.com",
                "kind": "Foo",
                "causes": [{"reason": "FieldValueInvalid", "message": "Invalid value: 9: at most 5", "field": "spec.size"}],
            },
        },
        id="a refusal of a field is Invalid and names it as a cause",
    ),
    pytest.param(
        Denied(errors=[required("spec.a"), invalid("spec.b", "x", "odd")]),
        {
            "message": 'Foo.example.com "a" is invalid: [spec.a: Required value, spec.b: Invalid value: "x": odd]',
            "reason": "Invalid",
            "code": 422,
            "details": {
                "name": "a",
                "group": "example.com",
                "kind": "Foo",
                "causes": [
                    {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.a"},
                    {"reason": "FieldValueInvalid", "message": 'Invalid value: "x": odd', "field": "spec.b"},
                ],
            },
        },
        id="several fields are several causes",
    ),
    pytest.param(
        ApiError.from_status(_NOT_FOUND),
        {"message": 'secrets "s" not found', "reason": "NotFound", "code": 404, "details": {"name": "s", "kind": "secrets"}},
        id="what an API server had answered to the hook passes through",
    ),
    pytest.param(
        NotFound(Status(message="no such thing")),
        {"message": "no such thing", "reason": "NotFound", "code": 404},
        id="an API error that the hook made has its class's code and reason",
    ),
]


@pytest.mark.parametrize(("error", "expected"), REFUSALS)
async def test_a_refusal_is_sent_as_it_was_raised(error: Exception, expected: JSONObject) -> None:
    hooks = Webhooks()

    @hooks.validating(Foo)
    async def check(foo: Foo) -> None:
        raise error

    response = await asked(hooks, review(foo()))
    assert not response["allowed"]
    status = {name: value for name, value in response["status"].items() if name not in ("kind", "apiVersion", "metadata", "status")}
    assert {name: value for name, value in status.items() if value is not None} == expected


def _raise(error: BaseException) -> None:
    raise error


class _Own(Exception):
    """An error of the program's."""


class _Outside(BaseException):
    """As libraries have for their own control flow."""


PANICS = [
    pytest.param(ValueError("password=hunter2"), "ValueError", id="an error"),
    pytest.param(_Own(), "_Own", id="an error of the program's own"),
    pytest.param(SystemExit(3), "SystemExit", id="an attempt to exit"),
    pytest.param(TimeoutError(), "TimeoutError", id="a timeout inside the webhook"),
    pytest.param(asyncio.CancelledError(), "CancelledError", id="something it waited for was cancelled"),
    pytest.param(RecursionError(), "RecursionError", id="a recursion without end"),
    pytest.param(_Outside(), "_Outside", id="an error that is no Exception"),
]


@pytest.mark.parametrize(("error", "name"), PANICS)
async def test_a_hook_that_raises_is_a_500_without_its_text(error: BaseException, name: str, caplog: pytest.LogCaptureFixture) -> None:
    hooks = Webhooks()

    @hooks.validating(Foo)
    async def check(foo: Foo) -> None:
        _raise(error)

    with caplog.at_level(logging.ERROR, "kubeloop"):
        answered = await hooks.answer(hooks.paths[0], review(foo()))
    status = json.loads(answered.body)["response"]["status"]
    assert (answered.panic, answered.code, status["code"], status["reason"]) == (True, 500, 500, "InternalError")
    assert status["message"].startswith(f'webhook "check.foos.example.com" failed: {name} (trace ')
    trace = status["message"].rpartition(" ")[2].rstrip(")")
    record = next(record for record in caplog.records if trace in record.getMessage())
    assert record.exc_info is not None
    assert record.kubeloop["object"] == "shop/a"  # type: ignore[attr-defined]  # set by the log context


@pytest.mark.parametrize("error", [KeyError("a"), StopIteration(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), _Outside()])
async def test_a_plain_hook_that_raises_in_its_thread_is_contained_too(error: BaseException) -> None:
    hooks = Webhooks()

    @hooks.validating(Foo)
    def check(foo: Foo) -> None:
        _raise(error)

    message = (await asked(hooks, review(foo())))["status"]["message"]
    assert f'webhook "check.foos.example.com" failed: {type(error).__name__} ' in message


UNSAYABLE: list[Any] = [
    pytest.param(lambda request: request.warn(5), id="a warning that is a number"),
    pytest.param(lambda request: request.warn(object()), id="a warning that is any object"),
    pytest.param(lambda request: request.warn("\ud800"), id="half of a character in a warning"),
    pytest.param(lambda request: request.audit("a", 7), id="an audit annotation that is a number"),
    pytest.param(lambda request: _raise(Denied("bad", field="spec", value=object())), id="a value that is no JSON"),
    pytest.param(lambda request: _raise(Denied("bad", code=403.5)), id="a code that is no number of a status"),  # type: ignore[arg-type]  # on purpose
]


@pytest.mark.parametrize("say", UNSAYABLE)
async def test_what_cannot_be_sent_is_a_failure_of_the_hook(say: Callable[[AdmissionRequest[Foo]], None]) -> None:
    """A server that cannot read an answer goes by failurePolicy, and Ignore lets the write through."""
    hooks = Webhooks()

    @hooks.validating(Foo)
    async def check(foo: Foo, request: AdmissionRequest[Foo]) -> None:
        say(request)

    response = await asked(hooks, review(foo()))
    assert (response["allowed"], response["status"]["code"]) == (False, 500)
    assert not {"warnings", "auditAnnotations"} & set(response)


async def test_a_hook_that_does_not_return_is_ended() -> None:
    hooks = Webhooks()

    @hooks.validating(Foo)
    async def check(foo: Foo) -> None:
        await asyncio.Event().wait()

    status = (await asked(hooks, review(foo()), timeout=0.01))["status"]
    assert (status["code"], status["reason"]) == (504, "Timeout")
    assert "did not answer within 0.01 s" in status["message"]


async def test_plain_hooks_that_do_not_return_leave_threads_to_others() -> None:
    hooks, let_go = Webhooks(), threading.Event()

    @hooks.validating(Foo)
    def check(foo: Foo) -> None:
        if foo.metadata.name == "stuck":
            let_go.wait()

    stuck = {**foo(), "metadata": {"name": "stuck"}}
    many = (os.cpu_count() or 1) + 8  # more than the loop's executor has threads
    try:
        answers = await asyncio.gather(*(asked(hooks, review(stuck), timeout=0.01) for _ in range(many)))
        assert {answer["status"]["code"] for answer in answers} == {504}
        assert (await asked(hooks, review(foo())))["allowed"]
    finally:
        let_go.set()


async def test_the_callers_own_cancellation_ends_a_review() -> None:
    hooks = Webhooks()
    begun = asyncio.Event()

    @hooks.validating(Foo)
    async def check(foo: Foo) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(hooks.answer(hooks.paths[0], review(foo())))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


BAD_OBJECTS = [
    pytest.param(review(foo(size="many")), "spec.size", id="a field of another type"),
    pytest.param(review(foo(), kind="Bar"), "Kind=Bar", id="another kind"),
    pytest.param(review(foo(), operation="DELETE", old=foo()), "not declared for DELETE", id="an operation it is not declared for"),
    pytest.param(review(None), "brings no object", id="no object"),
]


@pytest.mark.parametrize(("body", "text"), BAD_OBJECTS)
async def test_an_object_that_cannot_be_read_is_refused_with_400(body: bytes, text: str) -> None:
    hooks = Webhooks()

    @hooks.validating(Foo)
    def check(foo: Foo) -> None:
        """Never called."""

    status = (await asked(hooks, body))["status"]
    assert status["code"] == 400
    assert text in status["message"]


MALFORMED = [
    pytest.param(b"", "AdmissionReview", id="nothing"),
    pytest.param(b"[]", "AdmissionReview", id="no object"),
    pytest.param(b'{"apiVersion":"v1","kind":"Pod"}', "Kind=Pod", id="another kind"),
    pytest.param(b'{"apiVersion":"admission.k8s.io/v2","kind":"AdmissionReview"}', "admission.k8s.io/v2", id="an unknown version"),
    pytest.param(b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "no request", id="no request"),
    pytest.param(review({}, uid=""), "no uid", id="no uid"),
    pytest.param(review({}, operation="STEAL"), "STEAL", id="an unknown operation"),
    pytest.param(review({}, uid=7), "uid", id="a field of another type"),
    pytest.param(b"\xff", "AdmissionReview", id="no UTF-8"),
    pytest.param(b'{"a":' * 5000, "AdmissionReview", id="nested without end"),
]


@pytest.mark.parametrize(("body", "text"), MALFORMED)
async def test_a_body_that_is_no_review_is_malformed(body: bytes, text: str) -> None:
    hooks = Webhooks()

    @hooks.validating(Foo)
    def check(foo: Foo) -> None:
        """Never called."""

    with pytest.raises(ReviewMalformed, match=text):
        await hooks.answer(hooks.paths[0], body)
