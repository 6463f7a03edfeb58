"""Authentication: the user of a request, from its credentials."""

from kubeloop.apiserver.authentication.certificates import ClientAuthorities
from kubeloop.apiserver.authentication.chain import Authenticator, NotAuthenticated, StaticTokens, TokenAuthenticator, read_tokens
from kubeloop.endpoints.access import ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User
from kubeloop.endpoints.request_header import RequestHeaders, requested_impersonation

__all__ = [
    "ANONYMOUS",
    "AUTHENTICATED",
    "MASTERS",
    "UNAUTHENTICATED",
    "Authenticator",
    "ClientAuthorities",
    "NotAuthenticated",
    "RequestHeaders",
    "StaticTokens",
    "TokenAuthenticator",
    "User",
    "read_tokens",
    "requested_impersonation",
]
