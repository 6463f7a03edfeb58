"""Answers AdmissionReviews: decodes the object, calls the hook, and computes the patch against the received document.

Source: admission.k8s.io/v1 AdmissionResponse; behaviour of controller-runtime's pkg/webhook/admission.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from kubeloop.codec import decode, encode
from kubeloop.controller.threads import ThreadExecutor
from kubeloop.controller.webhooks.declared import AdmissionHook, HookCall
from kubeloop.controller.webhooks.request import (
    ADMISSION,
    AdmissionRequest,
    Denied,
    RawRequest,
    Warnings,
    has_object,
    read_review,
    status_of,
)
from kubeloop.merge.json_patch import json_diff
from kubeloop.meta import ApiError, DecodeError, Resource
from kubeloop.meta.failure_log import user_traceback
from kubeloop.meta.kinds import GroupKind
from kubeloop.meta.resource import kind_info, source_of
from kubeloop.meta.status import Status
from kubeloop.transport import log_context, logger_with_context
from kubeloop.types import JSONObject

_LOG = logger_with_context("kubeloop.controller.webhooks")


class Failed(Exception):
    """A hook failed; ``status`` is the response to the writer. ``panic``: it raised an unexpected error."""

    def __init__(self, status: Status, *, panic: bool = False) -> None:
        super().__init__(status.message)
        self.status = status
        self.panic = panic


class HookPartError(Exception):
    """Wraps an error of a hook for ``contained``. ``part`` names the part of the hook that raised it, such as a converter; may be empty."""

    def __init__(self, part: str, error: BaseException) -> None:
        super().__init__(part)
        self.part = part
        self.error = error


async def contained(name: str, work: Callable[[], Awaitable[Any]], seconds: float, **about: str) -> Any:
    """Return the result of ``work``, with its errors contained.

    Guarantees
        ``Denied`` and ``ApiError`` are re-raised. Every other error is logged with its traceback and a trace id, and becomes a 500 that
        names hook, error class and trace id, since its text may hold data that the writer must not see. Only the caller's own cancellation
        propagates.

    Raises:
        Failed: ``work`` raised, or took longer than ``seconds`` (504).
        Denied, ApiError: as raised.
    """
    trace = secrets.token_hex(8)
    with log_context(webhook=name, trace=trace, **about):
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                return await work()
        except (Denied, ApiError):
            raise
        except DecodeError as error:
            _LOG.log(logging.WARNING, "webhook %s: %s (trace %s)", name, error, trace)
            raise Failed(Status(message=f'webhook "{name}": {error}', reason="BadRequest", code=400)) from None
        except TimeoutError as error:
            if not deadline.expired():
                raise _panicked(name, error, trace) from None
            _LOG.log(logging.ERROR, "webhook %s did not answer within %g s (trace %s)", name, seconds, trace)
            message = f'webhook "{name}" did not answer within {seconds:g} s (trace {trace})'
            raise Failed(Status(message=message, reason="Timeout", code=504)) from None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise _panicked(name, error, trace) from None
        except HookPartError as inside:
            raise _panicked(f"{name}: {inside.part}" if inside.part else name, inside.error, trace) from None
        except (KeyboardInterrupt, GeneratorExit):  # they stop the program or the loop, and are not results of the hook
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a program raises: without an answer, failurePolicy Ignore lets the write through
            raise _panicked(name, error, trace) from None


def _panicked(name: str, error: BaseException, trace: str) -> Failed:
    shown = user_traceback(_LOG, error)
    _LOG.log(logging.ERROR, "webhook %s raised %s (trace %s)", name, type(error).__name__, trace, exc_info=shown)
    message = f'webhook "{name}" failed: {type(error).__name__} (trace {trace})'
    return Failed(Status(message=message, reason="InternalError", code=500), panic=True)


@dataclass(slots=True)
class HookVerdict:
    """The decision of a hook. ``patch`` is empty if it changed nothing; ``panic``: it raised an unexpected error."""

    allowed: bool
    status: Status | None = None
    patch: list[JSONObject] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    audit_annotations: Mapping[str, str] = field(default_factory=dict)
    panic: bool = False


@dataclass(slots=True)
class Answered:
    """An AdmissionReview with its response, as bytes, and the HTTP status for metrics. ``panic``: the hook raised an unexpected error.

    Example:
        >>> Answered(body=b"{}", code=200).panic
        False
    """

    body: bytes
    code: int
    panic: bool = False


async def answer_admission(hook: AdmissionHook, body: bytes, seconds: float) -> Answered:
    """Return the AdmissionReview that answers the one in ``body``, of the same version and uid.

    Raises:
        ReviewMalformed: ``body`` is not a review, so there is no uid to answer.
    """
    version, raw = read_review(body)
    verdict = await decide(hook, raw, seconds)
    response: JSONObject = {"uid": raw.uid, "allowed": verdict.allowed}
    if verdict.status is not None:
        response["status"] = verdict.status
    if verdict.patch:
        response["patch"] = base64.b64encode(msgspec.json.encode(verdict.patch)).decode()
        response["patchType"] = "JSONPatch"
    if verdict.warnings:
        response["warnings"] = verdict.warnings
    if verdict.audit_annotations:
        response["auditAnnotations"] = verdict.audit_annotations
    review = {"apiVersion": f"{ADMISSION}/{version}", "kind": "AdmissionReview", "response": response}
    return Answered(msgspec.json.encode(review), verdict.status.code if verdict.status else 200, verdict.panic)


async def decide(hook: AdmissionHook, raw: RawRequest, seconds: float) -> HookVerdict:
    """Return the decision of ``hook``, within ``seconds``. It never raises for errors of the hook."""
    request = raw.typed()
    about = {"operation": raw.operation, "object": f"{raw.namespace}/{raw.name}" if raw.namespace else raw.name}
    patch: list[JSONObject] = []
    status: Status | None = None
    panic = False
    try:
        patch, status = await contained(hook.name, lambda: _judged(hook, raw, request), seconds, **about)
    except Failed as failure:
        status, panic = failure.status, failure.panic
        if not _is_text(request):
            request.warnings, request.audit_annotations = [], {}
    return HookVerdict(status is None, status, patch, list(request.warnings), dict(request.audit_annotations), panic)


async def _judged(hook: AdmissionHook, raw: RawRequest, request: AdmissionRequest[Any]) -> tuple[list[JSONObject], Status | None]:
    """Call the hook. Return the patch, or the status of its denial. Both can be encoded; otherwise servers would apply failurePolicy.

    Raises:
        TypeError, ValueError: the result cannot be encoded.
    """
    patch: list[JSONObject] = []
    status: Status | None = None
    try:
        patch = await _run(hook, raw, request)
    except (Denied, ApiError) as error:
        info = kind_info(hook.body)
        status = status_of(error, GroupKind(info.gvk.group, info.gvk.kind), raw.name)
        msgspec.json.encode(status)
    if not _is_text(request):
        raise TypeError("warnings are texts, and audit annotations are texts by name")
    return patch, status


def _is_text(request: AdmissionRequest[Any]) -> bool:
    said = [*request.warnings, *request.audit_annotations, *request.audit_annotations.values()]
    try:
        return isinstance("".join(said).encode(), bytes)
    except (TypeError, UnicodeEncodeError):
        return False


async def _run(hook: AdmissionHook, raw: RawRequest, request: AdmissionRequest[Any]) -> list[JSONObject]:
    call = hook.calls.get(raw.operation)
    if call is None:
        raise DecodeError(f"it is not declared for {raw.operation}, only for {', '.join(hook.operations)}; is its configuration outdated?")
    wanted = kind_info(hook.body).gvk
    if raw.gvk() != wanted:
        raise DecodeError(f"it is declared for {wanted}, but was called for {raw.gvk()}; is its configuration outdated?")
    request.object = _decoded(hook.body, raw.object)
    request.old = _decoded(hook.body, raw.old_object)
    obj = request.old if raw.operation == "DELETE" else request.object
    if obj is None:
        raise DecodeError(f"the {raw.operation} brings no object")
    result = await _called(call, obj, request)
    if hook.mutating:
        return _patch(bytes(raw.object), obj, result)
    if isinstance(result, Warnings):
        for text in result:
            request.warn(text)
    elif result is not None:
        raise TypeError(f"a validating hook returns None or Warnings(...), not {type(result).__name__}; raise Denied(...) to refuse")
    return []


async def _called(call: HookCall, obj: Resource, request: AdmissionRequest[Any]) -> Any:
    arguments = (obj, request) if call.with_request else (obj,)
    if call.plain:
        # Not the loop's executor: a few hooks that never return would occupy all its threads and block the exit.
        threads = ThreadExecutor("kubeloop webhook")
        result = threads.call(lambda values: _in_thread(call.function, values), arguments)
        threads.close()
        return await result
    return await call.function(*arguments)


def _in_thread(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except (StopIteration, KeyboardInterrupt, GeneratorExit) as error:
        # A future does not accept StopIteration, and the others have another meaning on the loop.
        raise HookPartError("", error) from None


def _decoded(body: type[Resource], raw: msgspec.Raw) -> Resource | None:
    return decode(body, bytes(raw), checked=True) if has_object(raw) else None


def _patch(document: bytes, obj: Resource, result: Any) -> list[JSONObject]:
    """Return the patch from the received document to the changed object, or to the object that the hook returned."""
    changed = obj if result is None else result
    if not isinstance(changed, Resource) or type(changed) is not type(obj):
        raise TypeError(f"a mutating hook changes its object, or returns another {type(obj).__name__}, not {type(changed).__name__}")
    if source_of(changed) is None:
        raise TypeError("a mutating hook returned an object made from nothing: change the one it was given, or a copy of that")
    return json_diff(_tree(document), _tree(encode(changed)))


def _tree(document: bytes) -> JSONObject:
    return cast("JSONObject", msgspec.json.decode(document))
