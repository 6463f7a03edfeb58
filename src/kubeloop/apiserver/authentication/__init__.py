"""Who asks: users, and how they are told from the credentials of a request."""

from kubeloop.apiserver.authentication.chain import Authenticator
from kubeloop.apiserver.authentication.impersonation import impersonated
from kubeloop.apiserver.authentication.tokens import read_tokens
from kubeloop.apiserver.authentication.users import ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User

__all__ = [
    "ANONYMOUS",
    "AUTHENTICATED",
    "MASTERS",
    "UNAUTHENTICATED",
    "Authenticator",
    "User",
    "impersonated",
    "read_tokens",
]
