"""The objects of the API server on which the answers to writes and requests for subresources depend."""

from __future__ import annotations

from dataclasses import dataclass

from kubeloop.meta.errors import ApiError
from kubeloop.proxy.encodings import ACCEPT_JSON
from kubeloop.proxy.error_responses import UpstreamRefused, upstream_refusal
from kubeloop.proxy.scope import ProxiedRequest
from kubeloop.proxy.upstream import MAX_OBJECT, Upstream, body_of, object_path, parsed
from kubeloop.transport.round_tripper import OutgoingRequest
from kubeloop.types import JSONObject


@dataclass(frozen=True, slots=True)
class OriginalObject:
    """An object as the API server has it.

    Attributes:
        tree: The object.
        is_readable: The client has the right to read it; otherwise the proxy read it with its own rights.
    """

    tree: JSONObject
    is_readable: bool


async def original_of(upstream: Upstream, scope: ProxiedRequest) -> OriginalObject | None:
    """Return the API server's object, of which a request names the object or a subresource; None if there is none.

    It is read as the client, and by a client that may not read it as the proxy itself.

    Raises:
        UpstreamRefused: The API server refused the client for another reason, such as an unavailable API.
        ApiError: The API server refused the proxy, or sent no response.
    """
    info = scope.info
    if not info.name_in_path:
        return None
    path = object_path(info.group, info.version, info.resource, info.namespace, info.name)
    accept, caller = ("Accept", ACCEPT_JSON), scope.caller
    answer = await upstream.send(OutgoingRequest("GET", path, [accept, *caller.headers], None), as_proxy=caller.as_proxy)
    if answer.status not in (200, 403, 404):
        raise UpstreamRefused(await upstream_refusal(answer, scope.request))
    try:
        return OriginalObject(parsed(await body_of(answer, path, MAX_OBJECT)), is_readable=True)
    except ApiError as error:
        if error.status.code == 404:
            return None
        if error.status.code != 403:
            raise
    try:
        return OriginalObject(parsed(await upstream.read(path, [accept])), is_readable=False)
    except ApiError as error:
        if error.status.code == 404:
            return None
        raise
