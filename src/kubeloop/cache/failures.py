"""Sorts what went wrong with a list or watch: what it means for the next step, and whether waiting can help at all."""

from __future__ import annotations

from kubeloop.cache.reflector import Trouble
from kubeloop.meta.errors import ApiError, ConnectionRefused, Forbidden, Gone, Timeout, TooManyRequests, Unauthorized, UntrustedCertificate

_TOO_LARGE_CAUSE = "ResourceVersionTooLarge"
_TOO_LARGE_TEXT = "Too large resource version"

#: Only a person can repair these; who waits for a sync is told at once. (A missing kind may still be installed: it is waited for.)
HOPELESS = (Unauthorized, Forbidden, UntrustedCertificate)


def trouble_of(error: Exception) -> Trouble:
    """What a failure means for the reflector."""
    if isinstance(error, Gone):  # Expired is one
        return Trouble.EXPIRED
    if isinstance(error, ApiError) and is_too_large(error):
        return Trouble.TOO_LARGE
    if isinstance(error, ConnectionRefused):
        return Trouble.REFUSED
    if isinstance(error, TooManyRequests):
        return Trouble.BUSY
    return Trouble.OTHER


def is_too_large(error: ApiError) -> bool:
    """Whether the server has not seen the asked resourceVersion yet, in any of the ways servers have said so.

    Since 1.17 a cause with a reason of its own; before that a Timeout whose cause, and earlier still whose message, has the text.
    Source: k8s.io/client-go tools/cache reflector, behaviour A5.
    """
    if error.has_cause(_TOO_LARGE_CAUSE):
        return True
    if not isinstance(error, Timeout):
        return False
    return any(cause.message == _TOO_LARGE_TEXT for cause in error.causes) or _TOO_LARGE_TEXT in error.status.message
