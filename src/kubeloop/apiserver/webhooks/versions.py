"""Objects of a write in the version in which somebody wants to see them."""

from __future__ import annotations

import copy

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.webhooks.matching import Match
from kubeloop.types import JSONObject


async def versioned(objects: Objects, match: Match, attributes: Attributes, obj: JSONObject | None) -> JSONObject | None:
    """``obj`` in the version that was matched; the same tree where that is the request's own.

    Raises:
        ApiError: a webhook that converts failed.
    """
    if obj is None or match.resource is attributes.resource or attributes.kind is not None:
        return obj
    # Some converters share parts with what they are given, and then prune them.
    found = await objects.convert(attributes.resource, copy.deepcopy(obj), match.kind)
    if not match.resource.custom:
        match.resource.strategy.default(found)
    return found
