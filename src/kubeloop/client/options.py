"""What lists, watches, writes and deletions can be told, and how it stands in the URL or body.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/ and apimachinery pkg/apis/meta/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from kubeloop.meta import FieldSelector, LabelSelector, Selector, selector_from
from kubeloop.meta.label_requirement import Operator, Requirement
from kubeloop.meta.selectors import escape_field_value

Labels: TypeAlias = str | Mapping[str, str] | Selector | LabelSelector
"""A label selector: as kubectl takes it (``app=web,tier!=db``), as equal pairs, parsed, or as objects carry it."""

Fields: TypeAlias = str | Mapping[str, str] | FieldSelector
"""A field selector: as kubectl takes it (``spec.nodeName=n1``), as equal pairs, or parsed."""

Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]
Match: TypeAlias = Literal["Exact", "NotOlderThan"]
Validation: TypeAlias = Literal["Strict", "Warn", "Ignore"]

PAGE_SIZE = 500


def label_text(labels: Labels | None) -> str | None:
    """The selector as a URL carries it; None if it selects everything.

    Raises:
        ValueError: it selects nothing: a URL cannot say so, and leaving it out would select everything. Or a pair is no label.
    """
    if isinstance(labels, Mapping):
        # Checked: a value with a comma in it would become a requirement of its own.
        return ",".join(str(Requirement.checked(key, Operator.EQUALS, (value,))) for key, value in labels.items()) or None
    if isinstance(labels, LabelSelector):
        labels = selector_from(labels)
    if isinstance(labels, Selector) and labels.nothing:
        raise ValueError("this label selector selects nothing, which no request can say; do not send one")
    return str(labels) if labels is not None else None


def field_text(fields: Fields | None) -> str | None:
    """The selector as a URL carries it; None if it selects everything."""
    if isinstance(fields, Mapping):
        return ",".join(f"{path}={escape_field_value(value)}" for path, value in fields.items()) or None
    return str(fields) if fields is not None else None


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects to list, and of which version.

    ``resource_version`` None asks for the newest; "0" for whatever the server has at hand, which may be older than what
    was seen before. ``limit`` is the size of a page; 0 asks for everything in one answer, which costs the server its memory.
    """

    labels: Labels | None = None
    field_selector: Fields | None = None
    limit: int = PAGE_SIZE
    resource_version: str | None = None
    match: Match | None = None
    continue_token: str = ""
    timeout_seconds: int | None = None

    def query(self) -> dict[str, str | int | bool | None]:
        # A continue token carries its own version: the server refuses both together (API concepts, "Retrieving large result sets").
        first = not self.continue_token
        return {
            "labelSelector": label_text(self.labels) or None,
            "fieldSelector": field_text(self.field_selector) or None,
            "limit": self.limit or None,
            "continue": self.continue_token or None,
            "resourceVersion": self.resource_version if first else None,
            "resourceVersionMatch": self.match if first else None,
            "timeoutSeconds": self.timeout_seconds,
        }


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects to watch, and from which version on.

    ``send_initial_events`` asks for a streaming list (KEP-3157): the state comes as ADDED events and a bookmark ends it; it needs
    ``match="NotOlderThan"`` and bookmarks, which are set here.
    """

    labels: Labels | None = None
    field_selector: Fields | None = None
    resource_version: str | None = None
    bookmarks: bool = True
    timeout_seconds: int | None = None
    send_initial_events: bool = False

    def query(self) -> dict[str, str | int | bool | None]:
        return {
            "watch": True,
            "labelSelector": label_text(self.labels) or None,
            "fieldSelector": field_text(self.field_selector) or None,
            "resourceVersion": self.resource_version,
            "resourceVersionMatch": "NotOlderThan" if self.send_initial_events else None,
            "sendInitialEvents": True if self.send_initial_events else None,
            "allowWatchBookmarks": True if self.bookmarks or self.send_initial_events else None,
            "timeoutSeconds": self.timeout_seconds,
        }


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to write. ``dry_run`` does everything but store. ``validation`` Strict refuses unknown and duplicate fields."""

    dry_run: bool = False
    field_manager: str = ""
    validation: Validation | None = None
    force: bool | None = None

    def query(self) -> dict[str, str | int | bool | None]:
        return {
            "dryRun": "All" if self.dry_run else None,
            "fieldManager": self.field_manager or None,
            "fieldValidation": self.validation,
            "force": self.force,
        }


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to delete. ``grace_period`` in seconds; 0 deletes a pod without waiting for its node.

    ``uid`` and ``resource_version`` are preconditions: the server answers Conflict if the object has others.
    """

    propagation: Propagation | None = None
    grace_period: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False

    def body(self) -> bytes:
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if self.propagation is not None:
            options["propagationPolicy"] = self.propagation
        if self.grace_period is not None:
            options["gracePeriodSeconds"] = self.grace_period
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        if any(preconditions.values()):
            options["preconditions"] = {name: value for name, value in preconditions.items() if value}
        if self.dry_run:
            options["dryRun"] = ["All"]
        return msgspec.json.encode(options)
