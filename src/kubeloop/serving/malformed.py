"""What comes in and is no HTTP, or a method that no parser knows: answered like kube-apiserver, without a traceback in the log."""

from __future__ import annotations

import json
import logging

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError

_LOG = logging.getLogger(__name__)

#: What kube-apiserver answers to a method that it does not serve; Go's parser, unlike aiohttp's, takes any word for a method.
_UNKNOWN_METHOD = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "the server does not allow this method on the requested resource",
    "reason": "MethodNotAllowed",
    "details": {},
    "code": 405,
}


class _Connection(web.RequestHandler):
    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        _LOG.debug("refused what %s sent: %s", request.remote, exc)
        if isinstance(exc, BadHttpMethod):
            answer = web.json_response(_UNKNOWN_METHOD, status=405, dumps=lambda tree: json.dumps(tree, separators=(",", ":")))
        else:
            answer = web.Response(status=400, text="400 Bad Request")
        answer.force_close()  # nobody knows where a next request would begin
        return answer


class HttpServer(web.Server):
    """aiohttp's low-level server with answers of our own to what cannot be parsed."""

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)
