"""Reviews over HTTP: which path is asked, how large and in what form; the rest is the hooks'.

Source: k8s.io/apiserver pkg/util/webhook (one POST of JSON, ``?timeout=``); limits as controller-runtime's pkg/webhook/admission/http.go.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final, Protocol

from kubeloop.controller.webhooks.conversion import CONVERT_PATH
from kubeloop.controller.webhooks.declared import DEFAULT_TIMEOUT
from kubeloop.controller.webhooks.hooks import Webhooks
from kubeloop.controller.webhooks.request import ReviewMalformed
from kubeloop.serving.answer import Answer
from kubeloop.serving.negotiation import content_media_type
from kubeloop.serving.request import BodyMalformed, BodyTooLarge, Request

#: Bytes of an AdmissionReview, which holds an object twice; and of a ConversionReview, which may hold a whole list.
_MOST_REVIEWED: Final = 7 * 1024 * 1024
_MOST_CONVERTED: Final = 64 * 1024 * 1024
#: Part of a server's timeout within which it is answered, so that the answer arrives before the server gives up.
_IN_TIME: Final = 0.95
_LONGEST: Final = 30.0
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{0,9})?)(h|ms|m|s)")
#: Characters of a duration that is looked at; Go writes at most "2562047h47m16.854775807s".
_LONGEST_DURATION: Final = 30
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class Observer(Protocol):
    """Counts requests, by path."""

    def begun(self, path: str) -> None: ...

    def ended(self, path: str, code: int, seconds: float, *, panic: bool) -> None: ...


class Endpoint:
    """Answers the requests of a listener.

    404 for a path without a hook, 405 for anything but POST, 415 for anything but JSON, 413 for too long a body, 400 for what is no review;
    else 200 with a review, whatever its hook did.
    """

    def __init__(self, hooks: Webhooks, observer: Observer | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._hooks = hooks
        self._observer = observer
        self._now = now

    async def __call__(self, request: Request) -> Answer:
        path = request.path
        if path not in self._hooks.paths:
            return _text(404, f"no webhook is served at {path}")
        if self._observer is None:
            return (await self._answer(request))[0]
        started = self._now()
        self._observer.begun(path)
        code, panic = 499, False  # the client went: nginx's number for it
        try:
            answer, panic = await self._answer(request)
            code = answer.status
        finally:
            self._observer.ended(path, code, self._now() - started, panic=panic)
        return answer

    async def _answer(self, request: Request) -> tuple[Answer, bool]:
        if request.method != "POST":
            refused = _text(405, "a webhook is asked by POST")
            refused.headers.append(("Allow", "POST"))
            return refused, False
        given = request.header("Content-Type")
        if content_media_type(given) != "application/json":
            return _text(415, f'a review is application/json, not "{given}"'), False
        limit = _MOST_CONVERTED if request.path == CONVERT_PATH else _MOST_REVIEWED
        try:
            body = await request.read_body(limit)
            answered = await self._hooks.answer(request.path, body, timeout=_timeout(request.parameter("timeout")))
        except BodyTooLarge:
            return _text(413, f"the review is longer than {limit} bytes"), False
        except (BodyMalformed, ReviewMalformed) as error:
            return _text(400, str(error)), False
        return Answer(200, body=answered.body, content_type="application/json"), answered.panic


def _timeout(given: str) -> float:
    """Seconds for the hook, of a duration as Go writes it (``10s``)."""
    parts = _DURATION.findall(given[:_LONGEST_DURATION])
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not seconds or "".join(number + unit for number, unit in parts) != given:
        seconds = DEFAULT_TIMEOUT
    return min(seconds, _LONGEST) * _IN_TIME


def _text(status: int, text: str) -> Answer:
    return Answer(status, body=f"{text}\n".encode(), content_type="text/plain; charset=utf-8")
