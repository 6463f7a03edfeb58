"""Query parameters of log, exec, attach and portforward: PodLogOptions, PodExecOptions, PodAttachOptions, PodPortForwardOptions.

Source: Kubernetes API reference; conversion of parameters as k8s.io/apimachinery pkg/runtime/conversion.go, validation as
pkg/apis/core/validation (ValidatePodLogOptions). Parameters that are unknown are ignored.
"""

from __future__ import annotations

import json
from typing import Final

from kubeloop.apiserver.handlers.scope import RequestScope, ask_admission
from kubeloop.endpoints import api_errors
from kubeloop.meta.errors import DecodeError
from kubeloop.meta.field_error import FieldError, FieldErrorType, forbidden, invalid
from kubeloop.meta.kinds import GroupKind, GroupVersionKind
from kubeloop.meta.strconv import decimal, is_digits
from kubeloop.schema.strict_scalars import decode_time
from kubeloop.serving.request import Request
from kubeloop.types import JSONObject

Parameters = list[tuple[str, str]]

_INT32 = 1 << 31


def log_parameters(request: Request, pod: str) -> Parameters:
    """Return the query parameters to send to the kubelet's log endpoint, from those of the client's request.

    Raises:
        BadRequest: A number or time is malformed.
        Invalid: Values are out of range, or exclude each other.
    """
    seconds = _integer(request, "sinceSeconds")
    since = _time(request, "sinceTime")
    tail = _integer(request, "tailLines")
    limit = _integer(request, "limitBytes")
    errors: list[FieldError] = []
    if tail is not None and tail < 0:
        errors.append(invalid("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        errors.append(invalid("limitBytes", limit, "must be greater than 0"))
    if seconds is not None and since is not None:
        errors.append(FieldError(FieldErrorType.FORBIDDEN, "[]", None, "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif seconds is not None and seconds < 1:
        errors.append(invalid("sinceSeconds", seconds, "must be greater than 0"))
    if "stream" in request.query:
        errors.append(forbidden("stream", "may not be specified"))  # PodLogsQuerySplitStreams is off by default
    if errors:
        raise api_errors.invalid(GroupKind("", "PodLogOptions"), pod, errors)
    found: Parameters = [(name, "true") for name in ("follow", "previous", "timestamps") if is_true_parameter(request, name)]
    numbers = {"sinceSeconds": seconds, "tailLines": tail, "limitBytes": limit}
    found += [(name, str(number)) for name, number in numbers.items() if number is not None]
    if since is not None:
        found.append(("sinceTime", since))
    return found


def stream_parameters(request: Request, *, command: bool) -> Parameters:
    """Return the query parameters to send to the kubelet for exec or attach: the streams and, if ``command`` is True, the command."""
    names = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
    found: Parameters = [(names[name], "1") for name in names if is_true_parameter(request, name)]
    if command:
        found += [("command", one) for one in request.query.get("command", ())]
    return found


def port_parameters(request: Request) -> Parameters:
    """Return the query parameters to send to the kubelet for portforward.

    Raises:
        BadRequest: A port is not a number.
    """
    ports = [_port(part) for value in request.query.get("ports", ()) for part in value.split(",")]
    return [("port", ",".join(ports))] if ports else []


def is_true_parameter(request: Request, name: str) -> bool:
    """Return whether a boolean query parameter is true: present, and neither ``false`` nor ``0``."""
    values = request.query.get(name)
    return bool(values) and values is not None and values[0].lower() not in ("false", "0")


def _integer(request: Request, name: str) -> int | None:
    values = request.query.get(name)
    if not values:
        return None
    number = decimal(values[0])
    if number is None:
        raise api_errors.bad_request(f"strconv.ParseInt: {_parsing(values[0])}")
    return number


def _port(text: str) -> str:
    number = decimal(text, signed=False)
    if number is None or number >= _INT32:
        raise api_errors.bad_request(f"cannot convert to []int32: strconv.ParseUint: {_parsing(text)}")
    return str(number)


def _parsing(text: str) -> str:
    out_of_range = is_digits(text.removeprefix("+").removeprefix("-"))
    return f"parsing {json.dumps(text, ensure_ascii=False)}: {'value out of range' if out_of_range else 'invalid syntax'}"


def _time(request: Request, name: str) -> str | None:
    values = request.query.get(name)
    if not values:
        return None
    if values[0] in ("", "null"):
        return "0001-01-01T00:00:00Z"
    try:
        return decode_time(values[0], micro=False)
    except DecodeError as fault:
        raise api_errors.bad_request(str(fault)) from None


# Admission of connections: plug-ins and webhooks may refuse an exec, attach, port-forward or proxied request, seen as its options.
#
# Source: k8s.io/apiserver pkg/endpoints/handlers/rest.go (ConnectResource).


_KINDS: Final = {
    ("pods", "exec"): "PodExecOptions",
    ("pods", "attach"): "PodAttachOptions",
    ("pods", "portforward"): "PodPortForwardOptions",
    ("pods", "proxy"): "PodProxyOptions",
    ("services", "proxy"): "ServiceProxyOptions",
    ("nodes", "proxy"): "NodeProxyOptions",
}


async def admit(scope: RequestScope) -> None:
    """Call admission for a connection. Dry runs skip it, because the handler refuses them.

    Raises:
        ApiError: Admission refuses the connection.
    """
    if "dryRun" in scope.request.query:
        return
    info = scope.info
    kind = GroupVersionKind("", "v1", _KINDS[info.resource, info.subresource])
    obj = {"kind": kind.kind, "apiVersion": "v1", **_options(scope.request, info.subresource)}
    await ask_admission(scope, obj, kind=kind)


def _options(request: Request, subresource: str) -> JSONObject:
    """Return the fields of the options object that admission sees, as Go writes them: without false and empty values."""
    query = request.query
    if subresource == "proxy":
        path = request.path.partition("/proxy")[2]
        return {"path": path} if path else {}
    if subresource == "portforward":
        given = [decimal(part) for value in query.get("ports", ()) for part in value.split(",")]
        ports = [port for port in given if port is not None]
        return {"ports": ports} if ports else {}
    found: JSONObject = {name: True for name in ("stdin", "stdout", "stderr", "tty") if is_true_parameter(request, name)}
    if container := request.parameter("container"):
        found["container"] = container
    if subresource == "exec":
        found["command"] = list(query.get("command", ())) or None
    return found
