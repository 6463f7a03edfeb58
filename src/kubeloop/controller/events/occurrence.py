"""An occurrence to report about an object, validated and truncated to the limits of API servers. No I/O, no clock.

Limits: pkg/apis/core/validation/events.go, in bytes of UTF-8, as the server counts them.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Literal, NamedTuple

from kubeloop.meta import Resource
from kubeloop.meta.names import dns1123_subdomain

EventType = Literal["Normal", "Warning"]

LONGEST_MESSAGE = 1024
LONGEST_WORD = 128
#: Sequence for the numbers in names of events, which must differ even within a nanosecond.
_SEQUENCE = itertools.count()


class EventSubject(NamedTuple):
    """An object that an event is about, or a related object. ``field_path`` is a part of it: ``spec.containers{nginx}``.

    Example:
        >>> EventSubject("v1", "Pod", "shop", "web-0", uid="7c9e", field_path="spec.containers{nginx}").name
        'web-0'
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    field_path: str = ""

    @property
    def identity(self) -> tuple[str, ...]:
        """The identity of the object, without its version and field path."""
        return self[:5]


class Occurrence(NamedTuple):
    """One occurrence to report at a ``time``. ``action`` is the action that the controller took or tried because of it.

    Example:
        >>> subject = EventSubject("v1", "Pod", "shop", "web-0", uid="7c9e")
        >>> occurrence = Occurrence(subject, "Warning", "BackOff", "restarting failed container", datetime(2026, 1, 2))
        >>> occurrence.reason
        'BackOff'
    """

    subject: EventSubject
    type: str
    reason: str
    message: str
    time: datetime
    action: str = ""
    related: EventSubject | None = None
    annotations: tuple[tuple[str, str], ...] = ()


def occurrence_of(
    obj: Resource,
    type: str,  # noqa: A002  # the field's own name
    reason: str,
    message: object,
    at: datetime,
    *,
    action: str = "",
    related: Resource | None = None,
    field_path: str = "",
    annotations: Mapping[str, str] | None = None,
) -> Occurrence:
    """Return an occurrence that a server accepts. Long texts are truncated.

    Args:
        obj: The object that the event is about.
        type: "Normal" or "Warning".
        reason: A CamelCase word for machines.
        message: A sentence or an error for people.
        at: Time of the occurrence.
        action: The action that was taken or tried; a CamelCase word.
        related: Another object.
        field_path: The part of ``obj``, such as ``spec.containers{nginx}``.
        annotations: Annotations of the event.

    Raises:
        ValueError: the type is not Normal or Warning, the reason is empty, or the object has no kind or name.
    """
    if type not in ("Normal", "Warning"):
        raise ValueError(f'the type of an event is "Normal" or "Warning", not {type!r}')
    word = str(reason).strip() if reason else ""
    if not word:
        raise ValueError(f'an event needs a reason, a CamelCase word such as "Created", not {reason!r}')
    return Occurrence(
        subject_of(obj)._replace(field_path=field_path),
        type,
        cut(word, LONGEST_WORD),
        cut(str(message), LONGEST_MESSAGE),
        at,
        cut(action, LONGEST_WORD),
        subject_of(related) if related is not None else None,
        tuple(annotations.items()) if annotations else (),
    )


def subject_of(obj: Resource) -> EventSubject:
    """Return the reference to ``obj``.

    Raises:
        ValueError: the object has no kind or no name.
    """
    metadata = obj.metadata
    if not obj.kind or not obj.api_version or not metadata.name:
        raise ValueError(f'an event needs an object with kind and name, not {obj.kind or "one without kind"} "{metadata.name}"')
    return EventSubject(obj.api_version, obj.kind, metadata.namespace, metadata.name, metadata.uid, metadata.resource_version)


def cut(text: str, limit: int) -> str:
    """Return ``text`` in at most ``limit`` bytes of UTF-8, without a partial character."""
    encoded = text.encode("utf-8", "replace")
    # Decoded again even if short enough: a lone surrogate, as from a file name, cannot be sent.
    return encoded[:limit].decode("utf-8", "ignore")


def event_name(subject: str) -> str:
    """Return a new name for an event about an object; a random name if the object's name is not a valid prefix (too long, ``system:x``)."""
    number = (time.time_ns() + next(_SEQUENCE)) & 0xFFFFFFFFFFFFFFFF
    name = f"{subject}.{number:x}"
    return str(uuid.uuid4()) if dns1123_subdomain(name) else name
