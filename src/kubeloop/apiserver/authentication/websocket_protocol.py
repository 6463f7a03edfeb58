"""Bearer tokens of browsers, which cannot set headers of a WebSocket: one of the subprotocols that they offer.

Source: k8s.io/apiserver pkg/authentication/request/websocket.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from multidict import CIMultiDict

from kubeloop.serving.request import Request

_PREFIX: Final = "base64url.bearer.authorization.k8s.io."
_PROTOCOLS: Final = "Sec-WebSocket-Protocol"


class BadProtocol(Exception):
    """The subprotocols offered hold no token as they should. The text never holds it."""


def websocket_token(request: Request) -> str:
    """Empty: none is offered, or the request is for no WebSocket.

    Raises:
        BadProtocol
    """
    if _PROTOCOLS not in request.headers or request.header("Upgrade").lower() != "websocket":
        return ""
    offered = _offered(request)
    tokens = [one.removeprefix(_PREFIX) for one in offered if one.startswith(_PREFIX)]
    if not tokens:
        return ""
    if len(tokens) > 1:
        raise BadProtocol("multiple base64.bearer.authorization tokens specified")
    try:
        if "=" in tokens[0]:
            raise BadProtocol("invalid base64.bearer.authorization token encoding")
        decoded = base64.b64decode(tokens[0] + "=" * (-len(tokens[0]) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadProtocol("invalid base64.bearer.authorization token encoding") from None
    try:
        token = decoded.decode()
    except UnicodeDecodeError:
        raise BadProtocol("invalid base64.bearer.authorization token") from None
    if token and len(offered) == 1:
        raise BadProtocol("missing additional subprotocol")
    return token


def forget_websocket_token(request: Request) -> None:
    """Nobody behind authentication sees it, and it is never chosen."""
    headers = CIMultiDict(request.headers)
    headers[_PROTOCOLS] = ",".join(one for one in _offered(request) if not one.startswith(_PREFIX))
    request.headers = headers


def _offered(request: Request) -> list[str]:
    values = (value for name, value in request.headers.items() if name.lower() == _PROTOCOLS.lower())
    return [one.strip() for value in values for one in value.split(",")]
