"""Merging: what two changes of one object, the first of them still waiting, amount to. Pure."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from kubeloop.cache.handlers.event import Event, EventType
from kubeloop.meta import Resource

R = TypeVar("R", bound=Resource)


def merge(first: Event[R], second: Event[R]) -> tuple[Event[R], ...]:
    """The events that tell a handler, which has seen neither, as much of the object as both: none, one, or both.

    Guarantees
        Who hears the answer has heard of every object that is there, of the end of each that it knew, and of no end of one that it did
        not. States in between are lost, which is the purpose. The merged event keeps the first one's place and age.

    The rules
        added + updated is added with the new state; added + deleted is nothing: the handler never knew of it.
        updated + updated is one, from the first's old state to the second's new one; updated + deleted is deleted.
        A resync adds nothing to what waits already, and gives way to what follows.
        What concerns two objects (another uid under the same name) stays two, as does deleted + added.
    """
    before, after = first.type, second.type
    if after is EventType.RESYNC:
        return (first, second) if before is EventType.DELETED else (first,)
    if before is EventType.DELETED or after is EventType.ADDED or len({first.head.uid, second.head.uid, (first.old or first.head).uid}) > 1:
        return first, second
    if before is EventType.ADDED:
        if after is EventType.DELETED:
            return ()
        return (msgspec.structs.replace(first, head=second.head),)
    if before is EventType.RESYNC:
        return (msgspec.structs.replace(second, received=first.received),)
    return (msgspec.structs.replace(second, old=first.old, received=first.received),)
