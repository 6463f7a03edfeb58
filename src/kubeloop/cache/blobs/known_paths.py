"""Paths that a kind's objects can hardly have, by its model: most likely a slip of the pen, so it is said, and never refused."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any, Union, get_args, get_origin

import msgspec

from kubeloop.codec.paths import EACH, parse_path
from kubeloop.meta import Resource
from kubeloop.transport import logger_with_context

_log = logger_with_context("kubeloop.cache")
#: Models made from what Kubernetes publishes. Those of custom kinds are their authors', and may leave out what they do not need.
_KNOWN = "kubeloop.api."


def warn_of_unknown(kind: type[Resource], paths: Iterable[str], what: str) -> None:
    """Log each path that leaves the model of a kind of Kubernetes' own, with the name that was probably meant. ``what``: whose they are.

    Not looked at: other kinds, what lies inside maps, and malformed paths, which are refused elsewhere. Costs some 0.1 ms per path.
    """
    if not kind.__module__.startswith(_KNOWN):
        return
    for path in paths:
        if found := _unknown(kind, path):
            name, meant = found
            hint = f'; did you mean "{meant}"?' if meant else "; a newer server may have it"
            _log.warning('%s: path "%s": %s has no field "%s"%s', what, path, kind.__name__, name, hint)


def _unknown(kind: type[Resource], path: str) -> tuple[str, str] | None:
    """The part of a path that is no field, and the path up to there as it was probably meant ("" if nothing is alike)."""
    try:
        segments = parse_path(path)
    except ValueError:
        return None
    model: Any = kind
    done = ""
    for at, segment in enumerate(segments):
        if segment is EACH:
            if get_origin(model) is not list:
                return None
            (model,) = get_args(model)
            done += "[*]"
            continue
        if not isinstance(segment, str) or not isinstance(model, type) or not issubclass(model, msgspec.Struct):
            return None
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(model)}
        if segment not in fields:
            if not fields or (at == 0 and segment in ("apiVersion", "kind")):
                return None
            import difflib

            alike = difflib.get_close_matches(segment, fields, 1)
            return f"{done}.{segment}".lstrip("."), f"{done}.{alike[0]}".lstrip(".") if alike else ""
        done = f"{done}.{segment}".lstrip(".")
        model = _without_none(fields[segment])
    return None


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [each for each in get_args(annotation) if each is not type(None)]
        return rest[0] if len(rest) == 1 else None
    return annotation
