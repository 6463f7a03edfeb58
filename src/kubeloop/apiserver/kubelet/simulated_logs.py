"""Logs of pods on simulated nodes: the lines of an annotation of the pod, none without it, as a kubelet would answer them.

Source: Kubernetes pkg/kubelet/kubelet_pods.go (validateContainerLogStatus), pkg/kubelet/kuberuntime/logs (options of a log).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.exchange import Exchange
from kubeloop.apiserver.kubelet.objects import PODS, find
from kubeloop.meta.time import parse_time

JSONObject = dict[str, Any]

#: The text that each container of a pod on a simulated node has logged. kubeloop.controlplane.simulation lists all such annotations.
LOG = "simulated.kubeloop.dev/log"
#: Seconds between two looks at a pod whose log is followed.
_POLL = 0.5
_KINDS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


def read_log(exchange: Exchange, pod: JSONObject, container: str, parameters: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Return the log of a container on a simulated node.

    A log that is followed goes on, without further lines, until the container ends or the pod is gone.

    Args:
        exchange: The request.
        pod: The pod as it is stored.
        container: A container of the pod.
        parameters: Those that a kubelet would be asked with, such as ``{"follow": "true", "tailLines": "3"}``.

    Raises:
        BadRequest: the container has not begun to run, or has no previous instance; in the kubelet's words.
    """
    started = _started(pod, container, previous="previous" in parameters)
    lines = ((pod["metadata"].get("annotations") or {}).get(LOG) or "").splitlines(keepends=True)
    if not _is_wanted(started, parameters, exchange):
        lines = []
    if "tailLines" in parameters:
        count = int(parameters["tailLines"])
        lines = lines[len(lines) - min(count, len(lines)) :]
    if "timestamps" in parameters:
        lines = [f"{started} {line}" for line in lines]
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines).encode()
    if "limitBytes" in parameters:
        text = text[: int(parameters["limitBytes"])]
    follow = "follow" in parameters and "previous" not in parameters and "limitBytes" not in parameters
    return _stream(exchange, pod, container, text, follow=follow)


async def _stream(exchange: Exchange, pod: JSONObject, container: str, text: bytes, *, follow: bool) -> AsyncIterator[bytes]:
    if text:
        yield text
    metadata = pod["metadata"]
    while follow:
        found = await find(exchange, PODS, metadata.get("namespace", ""), metadata["name"])
        if (
            found is None
            or found["metadata"]["uid"] != metadata["uid"]
            or not (_status(found, container).get("state") or {}).get("running")
        ):
            return
        await exchange.parts.clock.sleep(_POLL)


def _started(pod: JSONObject, container: str, *, previous: bool) -> str:
    """Return when the instance of a container whose log is asked for began to run."""
    status, name = _status(pod, container), pod["metadata"]["name"]
    state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated")
    if not status:
        raise refusals.bad_request(f'container "{container}" in pod "{name}" is not available')
    if previous:
        if last is None:
            raise refusals.bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
        return str(last.get("startedAt") or "")
    chosen = state.get("running") or state.get("terminated") or last
    if chosen is None:
        reason = (state.get("waiting") or {}).get("reason")
        raise refusals.bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    return str(chosen.get("startedAt") or "")


def _status(pod: JSONObject, container: str) -> JSONObject:
    statuses = pod.get("status") or {}
    return next((one for kind in _KINDS for one in statuses.get(kind) or () if one["name"] == container), {})


def _is_wanted(started: str, parameters: Mapping[str, str], exchange: Exchange) -> bool:
    """Return whether lines of that time are asked for: all lines count as logged when the container began."""
    if not started:
        return True
    if "sinceTime" in parameters:
        return parse_time(started) >= parse_time(parameters["sinceTime"])
    if "sinceSeconds" in parameters:
        return parse_time(started) >= exchange.parts.clock.wall() - timedelta(seconds=int(parameters["sinceSeconds"]))
    return True
