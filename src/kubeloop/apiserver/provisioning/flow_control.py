"""Kubernetes' suggested and mandatory priority levels and flow schemas. This server keeps them and queues nothing.

Source: k8s.io/api flowcontrol bootstrap (k8s.io/apiserver pkg/apis/flowcontrol/bootstrap), as a fresh 1.36 server holds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import Any

import msgspec

JSONObject = dict[str, Any]

GROUP = "flowcontrol.apiserver.k8s.io"

_ANNOTATIONS = {"apf.kubernetes.io/autoupdate-spec": "true"}


def default_flow_control(now: str) -> Iterator[tuple[str, JSONObject]]:
    """Each with its resource; new trees at every call. ``now``: RFC 3339."""
    told = msgspec.json.decode((resources.files("kubeloop.apiserver.provisioning") / "flow_control.json").read_bytes())
    for row in told["prioritylevelconfigurations"]:
        yield "prioritylevelconfigurations", {"metadata": _metadata(row), "spec": row["spec"], "status": {}}
    for row in told["flowschemas"]:
        level = row["spec"]["priorityLevelConfiguration"]["name"]
        yield "flowschemas", {"metadata": _metadata(row), "spec": row["spec"], "status": {"conditions": [_found(level, now)]}}


def _metadata(row: JSONObject) -> JSONObject:
    return {"name": row["name"], "generation": 1, "annotations": dict(_ANNOTATIONS)}


def _found(level: str, now: str) -> JSONObject:
    message = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}" and it exists'
    return {"type": "Dangling", "status": "False", "lastTransitionTime": now, "reason": "Found", "message": message}
