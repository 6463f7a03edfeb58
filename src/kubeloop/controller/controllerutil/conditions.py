"""Conditions of an object's status: set, read and removed in memory, typed or not; nothing here talks to a server.

Source: Kubernetes API conventions, "Typical status properties"; apimachinery pkg/api/meta/conditions.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from kubeloop.codec.shape import Shape, ValueForm, fields_of
from kubeloop.meta import KubeloopError, Resource, Unstructured
from kubeloop.meta.names import qualified_name
from kubeloop.meta.time import format_time, parse_time
from kubeloop.meta.type_checks import described_word

#: Limits of metav1.Condition for a reason and a message (apimachinery pkg/apis/meta/v1/types.go).
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_LONGEST_REASON: Final = 1024
_LONGEST_MESSAGE: Final = 32768


class ConditionsError(KubeloopError, TypeError):
    """The object cannot hold conditions: its kind has no ``status.conditions``, or its status is missing or malformed.

    The message names the object and says how to fix it.
    """


class ConditionView(msgspec.Struct, frozen=True):
    """One condition of an object's status. ``status`` is ``True``, ``False`` or ``Unknown``, as text.

    Example:
        >>> pod = Pod(metadata=ObjectMeta(name="web-0"))
        >>> get_condition(pod, "Ready")
        >>> set_condition(pod, "Ready", True, reason="Started")
        True
        >>> get_condition(pod, "Ready").status
        'True'
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: datetime | None = None


def set_condition(
    obj: Resource,
    type: str,  # noqa: A002 - the field's own word
    status: bool | str | None,
    *,
    reason: str,
    message: str = "",
    observed_generation: int | None = None,
    now: datetime | None = None,
) -> bool:
    """Set a condition in ``obj.status.conditions``; return whether the object changed. Nothing is sent: see ``StatusWriter``.

    Guarantees
        ``lastTransitionTime`` changes only when ``status`` does. Conditions keep their order; a new one comes last. Fields of a condition
        that are not named here stay. A message of more than 32,768 characters, which servers reject, is truncated.

    Args:
        obj: The object.
        type: Type of the condition, such as ``Ready``.
        status: True, False, None for unknown, or the string itself.
        reason: A CamelCase word.
        message: A sentence for people.
        observed_generation: Value of ``observedGeneration``. None: the object's generation. It is omitted if the kind's conditions lack the
            field.
        now: Time of a transition, in whole seconds. None: the machine's clock.

    Raises:
        ConditionsError: the kind has no status.conditions, or the status is missing and cannot be created, or it is malformed.
        ValueError: an invalid type, status or reason.
    """
    word = _word(status)
    _check(type, reason)
    moment = (now or datetime.now(UTC)).replace(microsecond=0)
    if len(message) > _LONGEST_MESSAGE:
        message = message[: _LONGEST_MESSAGE - 1] + "\N{HORIZONTAL ELLIPSIS}"
    generation = obj.metadata.generation if observed_generation is None else observed_generation
    said = {"status": word, "reason": reason, "message": message, "observedGeneration": generation or None}
    place = _place(obj, create=True)
    known = place.find(type)
    if known is None:
        place.add({"type": type, **said, "lastTransitionTime": moment, "lastUpdateTime": moment})
        return True
    moved = place.value(known, "status") != word
    changed = [name for name, value in said.items() if place.has(name) and (place.value(known, name) or None) != (value or None)]
    if not changed:
        return False
    place.write(known, {name: said[name] for name in changed})
    # Kinds that are older than metav1.Condition (Deployment) also record when a condition was last updated.
    place.write(known, {"lastUpdateTime": moment})
    if moved:
        place.write(known, {"lastTransitionTime": moment})
    return True


def get_condition(obj: Resource, type: str) -> ConditionView | None:  # noqa: A002 - the field's own word
    """Return the condition of that type; None if the object does not have it.

    Raises:
        ConditionsError: see ``set_condition``.
    """
    place = _place(obj)
    found = place.find(type)
    if found is None:
        return None
    when = place.value(found, "lastTransitionTime")
    return ConditionView(
        type,
        str(place.value(found, "status") or ""),
        str(place.value(found, "reason") or ""),
        str(place.value(found, "message") or ""),
        place.value(found, "observedGeneration"),
        parse_time(when) if isinstance(when, str) else when,
    )


def has_condition(obj: Resource, type: str, status: bool | str | None = True) -> bool:  # noqa: A002 - the field's own word
    """Return whether the condition has that status for the newest spec. A condition with an older observedGeneration does not count.

    Raises:
        ConditionsError, ValueError: see ``set_condition``.
    """
    found = get_condition(obj, type)
    if found is None or found.status != _word(status):
        return False
    return found.observed_generation is None or found.observed_generation >= obj.metadata.generation


def remove_condition(obj: Resource, type: str) -> bool:  # noqa: A002 - the field's own word
    """Remove the condition. Return whether the object had it.

    Raises:
        ConditionsError: see ``set_condition``.
    """
    place = _place(obj)
    kept = [one for one in place.items if place.value(one, "type") != type]
    gone = len(kept) < len(place.items)
    if gone:
        place.items[:] = kept
    return gone


def _word(status: bool | str | None) -> str:
    word = {True: "True", False: "False", None: "Unknown"}[status] if status is None or isinstance(status, bool) else status
    if word not in ("True", "False", "Unknown"):
        raise ValueError(f"status={described_word(status)}: a condition is True, False or Unknown; give True, False, None or that word")
    return word


def _check(type: str, reason: str) -> None:  # noqa: A002 - the field's own word
    if faults := qualified_name(type):
        raise ValueError(f"type={type!r} of a condition: {faults[0]}")
    if not _REASON.fullmatch(reason) or len(reason) > _LONGEST_REASON:
        raise ValueError(
            f"reason={reason!r} of condition {type}: must be one word in CamelCase for programs to read, such as MinimumReplicas"
        )


class _Trees:
    """Conditions of an unstructured object: maps with wire names."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def find(self, name: str) -> Any:
        return next((one for one in self.items if isinstance(one, dict) and one.get("type") == name), None)

    def has(self, name: str) -> bool:
        return name != "lastUpdateTime"

    def value(self, item: Any, name: str) -> Any:
        return item.get(name) if isinstance(item, dict) else None

    def write(self, item: Any, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if name == "lastUpdateTime" and name not in item:
                continue
            if value is None:
                item.pop(name, None)
            else:
                item[name] = format_time(value) if isinstance(value, datetime) else value

    def add(self, values: Mapping[str, Any]) -> None:
        made: dict[str, Any] = {}
        self.write(made, values)
        # Required by metav1.Condition, even if it is empty.
        self.items.append({"message": ""} | made)


class _Structs:
    """Conditions of a typed object: structs of the class that the kind declares."""

    def __init__(self, items: list[Any], cls: type[msgspec.Struct]) -> None:
        self.items = items
        self._cls = cls
        self._names = {wire: field.name for wire, field in fields_of(cls).by_wire.items()}

    def find(self, name: str) -> Any:
        return next((one for one in self.items if self.value(one, "type") == name), None)

    def has(self, name: str) -> bool:
        return name in self._names

    def value(self, item: Any, name: str) -> Any:
        attribute = self._names.get(name)
        return None if attribute is None else getattr(item, attribute)

    def write(self, item: Any, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if name in self._names:
                setattr(item, self._names[name], value)

    def add(self, values: Mapping[str, Any]) -> None:
        self.items.append(self._cls(**{self._names[name]: value for name, value in values.items() if name in self._names}))


def _place(obj: Resource, *, create: bool = False) -> _Trees | _Structs:
    if isinstance(obj, Unstructured):
        return _Trees(_tree_items(obj, create))
    status = fields_of(type(obj)).by_wire.get("status")
    conditions = fields_of(status.shape.type).by_wire.get("conditions") if status is not None and _is_struct(status.shape) else None
    item = conditions.shape.item if conditions is not None else None
    if status is None or conditions is None or item is None or not _is_struct(item) or "type" not in fields_of(item.type).by_wire:
        name = type(obj).__name__
        raise ConditionsError(
            f"{name} has no status.conditions to write to: give its status a field "
            "conditions: list[Condition] = msgspec.field(default_factory=list) with kubeloop.api.meta.v1.Condition"
        )
    holder = getattr(obj, status.name)
    if holder is None:
        if not create:
            return _Structs([], item.type)
        holder = _new_status(obj, status.shape.type)
        setattr(obj, status.name, holder)
    items = getattr(holder, conditions.name)
    if items is None:
        items = []
        if create:
            setattr(holder, conditions.name, items)
    return _Structs(items, item.type)


def _new_status(obj: Resource, cls: type[msgspec.Struct]) -> Any:
    required = [field.name for field in fields_of(cls).by_wire.values() if field.required]
    if required:
        arguments = ", ".join(f"{name}=..." for name in required)
        raise ConditionsError(
            f'{obj.kind} "{obj.object_key()}" has no status yet, and a {cls.__name__} cannot be made without {", ".join(required)}: '
            f"set it before its conditions, as in obj.status = {cls.__name__}({arguments})"
        )
    return cls()


def _is_struct(shape: Shape) -> bool:
    return shape.form is ValueForm.STRUCT


def _tree_items(obj: Unstructured, create: bool) -> list[Any]:
    tree = obj.to_dict()
    status = tree.get("status")
    if status is None and create:
        status = tree["status"] = {}
    if status is not None and not isinstance(status, dict):
        raise ConditionsError(f'{obj.kind} "{obj.object_key()}": status is not an object, so it can hold no conditions')
    items = status.get("conditions") if status is not None else None
    if items is None:
        items = []
        if create and status is not None:
            status["conditions"] = items
    if not isinstance(items, list):
        raise ConditionsError(f'{obj.kind} "{obj.object_key()}": status.conditions is not a list')
    return items
