"""Who asks: users, and how they are told from the credentials of a request."""

from kubeloop.apiserver.authentication.certificates import ClientAuthorities
from kubeloop.apiserver.authentication.chain import Authenticator, NotAuthenticated, StaticTokens, Tokens, read_tokens
from kubeloop.apiserver.authentication.request_header import RequestHeaders, impersonated
from kubeloop.endpoints.access import ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User

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
    "Tokens",
    "User",
    "impersonated",
    "read_tokens",
]
