"""Refusals: those of the API server, as its clients get them, and those of the proxy itself."""

from __future__ import annotations

from typing import Final

from kubeloop.endpoints.responses import status_answer
from kubeloop.http1.headers import Headers
from kubeloop.meta.errors import ApiError, TransportError
from kubeloop.proxy.forwarding import passed, passed_headers
from kubeloop.proxy.upstream import MAX_OBJECT, HeaderLines, bad_gateway, is_json, parsed, unreachable
from kubeloop.serving.answer import Answer, Reply
from kubeloop.serving.request import Request
from kubeloop.transport.connection import PooledAnswer

#: Headers of responses that no longer fit a body that the proxy has written.
_OF_BODY: Final = frozenset({"content-length", "content-type", "content-encoding", "etag", "last-modified"})


class UpstreamRefused(Exception):
    """The API server refused a request on whose answer that for the client depends. ``reply`` is the refusal."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self.reply = reply


def own_refusal(error: ApiError) -> Answer:
    """Return a refusal of the proxy itself. It has no Audit-Id, because no audit log has an event of it."""
    answer = status_answer(error.status)
    answer.headers.append(("Cache-Control", "no-cache, private"))
    return answer


async def upstream_refusal(answer: PooledAnswer, request: Request) -> Reply:
    """Return a response of the API server that is no success, for the client.

    Args:
        answer: The response, with an unread body.
        request: The client's request.

    Raises:
        ApiError: 502: it is another success than the one to which rules apply, or it broke off.
    """
    if answer.status < 300:
        answer.close()
        raise bad_gateway("the API server sent another status than 200, so that the rules cannot be applied")
    if answer.status < 400:
        return await passed(answer, request)
    headers = headers_without_body(answer.headers)
    try:
        body = await answer.read(MAX_OBJECT)
    except TransportError as error:
        raise unreachable(error) from error
    finally:
        answer.close()
    if is_json(answer.headers):
        # In the media type that the client accepts; the proxy asked for JSON.
        return Answer(answer.status, object=parsed(body), headers=headers)
    return Answer(answer.status, body=body, content_type=answer.headers.get("Content-Type", ""), headers=headers, verbatim=True)


def headers_without_body(received: Headers) -> HeaderLines:
    """Return the API server's headers for a client, without those of its body: the proxy sends another one."""
    return [(name, value) for name, value in passed_headers(received) if name.lower() not in _OF_BODY]
