"""Kubernetes' suggested and mandatory priority levels and flow schemas. What they do here: ``flow``.

Source: k8s.io/api flowcontrol bootstrap (k8s.io/apiserver pkg/apis/flowcontrol/bootstrap), as a fresh 1.36 server holds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from kubeloop.types import JSONObject

GROUP = "flowcontrol.apiserver.k8s.io"

#: What the server itself relies on: nobody may change the spec of these.
_MANDATORY = ("catch-all", "exempt")

_ANNOTATIONS = {"apf.kubernetes.io/autoupdate-spec": "true"}


def default_flow_control(now: str) -> Iterator[tuple[str, JSONObject]]:
    """Each with its resource; new trees at every call. ``now``: RFC 3339."""
    told = _told()
    for row in told["prioritylevelconfigurations"]:
        yield "prioritylevelconfigurations", {"metadata": _metadata(row), "spec": row["spec"], "status": {}}
    for row in told["flowschemas"]:
        level = row["spec"]["priorityLevelConfiguration"]["name"]
        yield (
            "flowschemas",
            {"metadata": _metadata(row), "spec": row["spec"], "status": {"conditions": [dangling(level, now, exists=True)]}},
        )


@cache
def mandatory(resource: str) -> Mapping[str, JSONObject]:
    """Specs by name; shared, do not change them."""
    return {row["name"]: row["spec"] for row in _told()[resource] if row["name"] in _MANDATORY}


def _told() -> dict[str, list[JSONObject]]:
    data = (resources.files("kubeloop.apiserver.builtin.bootstrap") / "flow_control.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, list[dict[str, Any]]])


def _metadata(row: JSONObject) -> JSONObject:
    return {"name": row["name"], "generation": 1, "annotations": dict(_ANNOTATIONS)}


def dangling(level: str, now: str, *, exists: bool) -> JSONObject:
    """Return the condition of a FlowSchema that names the priority level ``level``; ``now``: RFC 3339."""
    state, reason, why = ("False", "Found", "it exists") if exists else ("True", "NotFound", "there is no such object")
    link = "and" if exists else "but"
    message = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}" {link} {why}'
    return {"type": "Dangling", "status": state, "lastTransitionTime": now, "reason": reason, "message": message}
