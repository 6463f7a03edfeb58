"""``matchConditions`` of webhooks: CEL over the request, asked for only after rules and selectors.

Not evaluated yet: a write that a webhook with conditions is concerned by is refused, and says why.
"""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.webhooks.configurations import Hook

JSONObject = dict[str, Any]


def conditions_hold(hook: Hook, request: JSONObject) -> bool:
    """Whether all conditions of ``hook`` are true of ``request`` (of an AdmissionReview, objects included).

    Raises:
        NotImplemented: always.
    """
    what = f'matchConditions of webhook "{hook.name}", which is concerned by this {request["operation"]}'
    raise refusals.not_implemented(f"{what}; remove them from its configuration")
