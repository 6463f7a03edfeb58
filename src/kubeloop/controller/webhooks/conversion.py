"""Answers ConversionReviews: all objects in the version asked for, or one message that says which could not be converted and why.

Source: apiextensions.k8s.io/v1 and v1beta1 ConversionReview.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from kubeloop.controller.webhooks.admission import Answered
from kubeloop.controller.webhooks.containing import Failed, contained
from kubeloop.controller.webhooks.converters import Converters
from kubeloop.controller.webhooks.denied import Denied
from kubeloop.controller.webhooks.request import ReviewMalformed, checked_version
from kubeloop.meta import ApiError
from kubeloop.types import JSONObject

CONVERT_PATH: Final = "/convert"
_GROUP: Final = "apiextensions.k8s.io"
#: Objects after which others may run, too.
_AT_ONCE: Final = 50


class _Request(msgspec.Struct):
    uid: str
    wanted: str = msgspec.field(name="desiredAPIVersion")
    objects: list[msgspec.Raw] | None = None


class _Review(msgspec.Struct):
    api_version: str = msgspec.field(name="apiVersion")
    kind: str
    request: _Request | None = None


_REVIEWS = msgspec.json.Decoder(_Review)


async def answer_conversion(converters: Converters, body: bytes, seconds: float) -> Answered:
    """The review that answers the one in ``body``, of the same version, with its uid; the objects in the order in which they came.

    Raises:
        ReviewMalformed: ``body`` is no review.
    """
    try:
        review = _REVIEWS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReviewMalformed(f"the body is no ConversionReview: {error}") from None
    version = checked_version(review.api_version, review.kind, _GROUP, "ConversionReview")
    request = review.request
    if request is None or not request.uid:
        raise ReviewMalformed("the ConversionReview has no request with a uid")
    made: list[msgspec.Raw] = []
    panic, code = False, 200
    result: JSONObject = {"status": "Success"}
    try:
        made = await contained("convert", lambda: _converted(converters, request), seconds, wanted=request.wanted)
    except (Denied, ApiError) as error:
        code, result = 422, {"status": "Failure", "message": str(error), "code": 422}
    except Failed as failure:
        panic, code = failure.panic, failure.status.code
        result = {"status": "Failure", "message": str(failure), "reason": failure.status.reason, "code": code}
    response: JSONObject = {"uid": request.uid, "convertedObjects": made, "result": result}
    answer = {"apiVersion": f"{_GROUP}/{version}", "kind": "ConversionReview", "response": response}
    return Answered(msgspec.json.encode(answer), code, panic)


async def _converted(converters: Converters, request: _Request) -> list[msgspec.Raw]:
    made = []
    for number, raw in enumerate(request.objects or (), 1):
        made.append(msgspec.Raw(converters.convert(bytes(raw), request.wanted)))
        if not number % _AT_ONCE:
            await asyncio.sleep(0)
    return made
