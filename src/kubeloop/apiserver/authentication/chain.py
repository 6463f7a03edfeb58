"""Who asks: a bearer token, else a client certificate, else nobody (anonymous).

Source: Kubernetes documentation, "Authenticating".
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeloop.apiserver import refusals
from kubeloop.apiserver.authentication.certificates import certificate_user, is_valid_now
from kubeloop.apiserver.authentication.users import ANONYMOUS, User
from kubeloop.serving.request import Request

_EXTRA_SPACE = "the provided Authorization header contains extra space before the bearer token, and is ignored"


class Authenticator:
    """Tells who a request is from: a bearer token counts before a certificate, as in kube-apiserver.

    The certificate was verified by TLS, all but its times: one of another authority never comes this far, an expired one does.
    """

    def __init__(self, tokens: Mapping[str, User] | None = None) -> None:
        self._tokens = dict(tokens or {})

    async def authenticate(self, request: Request, warnings: list[str]) -> User:
        """No credentials at all, or of an unknown scheme, mean anonymous. ``warnings`` is added to.

        Raises:
            Unauthorized: a token that nobody knows, or a certificate that is expired.
        """
        header = request.header("Authorization")
        token = _bearer_token(header)
        if token is None:
            warnings.append(_EXTRA_SPACE)
        elif token:
            user = self._tokens.get(token)
            if user is None:
                raise refusals.unauthorized()
            return user
        if request.peer_certificate:
            if not is_valid_now(request.peer_certificate):
                raise refusals.unauthorized()
            return certificate_user(request.peer_certificate)
        return ANONYMOUS

    async def review(self, token: str) -> User | None:
        """Whose token it is, for TokenReviews."""
        return self._tokens.get(token)


def _bearer_token(header: str) -> str | None:
    """What stands between the first two spaces; empty without a token, None when there is a space too many."""
    scheme, _, rest = header.strip().partition(" ")
    if scheme.lower() != "bearer":
        return ""
    token, further, _ = rest.partition(" ")
    return None if further and not token else token
