"""Sorts what went wrong with a list or watch: what it means for the next step, whether waiting can help, and what a person can do."""

from __future__ import annotations

import sys
from pathlib import Path

from kubeloop.cache.reflector.steps import FailureClass
from kubeloop.meta import Resource, Unstructured, kind_info
from kubeloop.meta.error_hints import refused_access
from kubeloop.meta.errors import (
    ApiError,
    BadRequest,
    ConnectionRefused,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    Timeout,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
    UntrustedCertificate,
)

_TOO_LARGE_CAUSE = "ResourceVersionTooLarge"
_TOO_LARGE_TEXT = "Too large resource version"
#: A server that asks for more patience than this, in seconds, is asked again after it all the same.
LONGEST_WAIT = 300.0

#: Only a person can repair these; who waits for a sync is told at once. (A missing kind may still be installed: it is waited for.)
HOPELESS = (Unauthorized, Forbidden, UntrustedCertificate)

_NOT_UNDERSTOOD = (BadRequest, Invalid, MethodNotAllowed, NotAcceptable, UnsupportedMediaType)


def trouble_of(error: Exception) -> FailureClass:
    """What a failure means for the reflector."""
    if isinstance(error, Gone):  # Expired is one
        return FailureClass.EXPIRED
    if isinstance(error, ApiError) and is_too_large(error):
        return FailureClass.TOO_LARGE
    if isinstance(error, ConnectionRefused):
        return FailureClass.REFUSED
    if isinstance(error, TooManyRequests):
        return FailureClass.BUSY
    if isinstance(error, InternalError):
        return FailureClass.INTERNAL
    return FailureClass.INVALID if isinstance(error, _NOT_UNDERSTOOD) else FailureClass.OTHER


def wait_of(error: Exception) -> float:
    """Seconds that the server asked to wait; 0 if it did not."""
    seconds = error.retry_after if isinstance(error, ApiError) else None
    return min(float(max(seconds or 0, 0)), LONGEST_WAIT)


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


def install_advice(kind: type[Resource]) -> str:
    """Return what a person does when a server does not serve this kind; "" for a class that no definition can be made from."""
    module = kind.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        module = spec.name if spec is not None else Path(getattr(main, "__file__", None) or "").stem
    info = kind_info(kind)
    importable = bool(module) and "<" not in kind.__qualname__
    if not importable or module.partition(".")[0] == "kubeloop" or issubclass(kind, Unstructured) or info.plural is None:
        return ""
    command = f"kubeloop generate crd {module}:{kind.__qualname__} | kubectl apply -f -"
    return f"the server does not serve {info.gvk.kind} ({kind.api_version}); install its definition: {command}"


def diagnosis(error: Exception, verb: str) -> str:
    """What a person can do about a failed list or watch; "" where the error says it itself or nothing is to be done."""
    if isinstance(error, Forbidden):
        if refused_access(error) is not None:
            return "informers need list and watch"  # its text holds the command that grants the verb
        return f"grant this user the verb {verb} (informers need list and watch)"
    if isinstance(error, NotFound) and "CustomResourceDefinition" not in str(error):
        return "is this kind installed there (its CustomResourceDefinition, its API server), in this version?"
    return ""
