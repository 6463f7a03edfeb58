"""What lists, watches, writes and deletions can be told, and how it stands in the URL or body.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/ and apimachinery pkg/apis/meta/v1/types.go.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import msgspec

from kubeloop.client.selector_text import Fields, Labels, field_text, label_text
from kubeloop.meta.type_checks import described_word

Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]
Match: TypeAlias = Literal["Exact", "NotOlderThan"]
Validation: TypeAlias = Literal["Strict", "Warn", "Ignore"]
Expiry: TypeAlias = Literal["raise", "relist"]

PAGE_SIZE = 500


def _check(options: msgspec.Struct, *numbers: str, **choices: object) -> None:
    """A wrong value is named here, before a server has to."""
    for name in numbers:
        value = getattr(options, name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise ValueError(f"{name}={described_word(value)}: must be a whole number, 0 or more")
    for name, alias in choices.items():
        value, known = getattr(options, name), get_args(alias)
        if value is not None and value not in known:
            raise ValueError(f"{name}={described_word(value)}: must be one of {', '.join(known)}")


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects to list, and of which version.

    ``resource_version`` None asks for the newest; "0" for whatever the server has at hand, which may be older than what
    was seen before. ``limit`` is the size of a page; 0 asks for everything in one answer, which costs the server its memory.
    """

    label_selector: Labels | None = None
    field_selector: Fields | None = None
    limit: int = PAGE_SIZE
    resource_version: str | None = None
    resource_version_match: Match | None = None
    continue_token: str = ""
    timeout_seconds: int | None = None

    def __post_init__(self) -> None:
        _check(self, "limit", "timeout_seconds", resource_version_match=Match)

    def query(self) -> dict[str, str | int | bool | None]:
        # A continue token carries its own version: the server refuses both together (API concepts, "Retrieving large result sets").
        first = not self.continue_token
        return {
            "labelSelector": label_text(self.label_selector),
            "fieldSelector": field_text(self.field_selector),
            "limit": self.limit or None,
            "continue": self.continue_token or None,
            "resourceVersion": self.resource_version if first else None,
            "resourceVersionMatch": self.resource_version_match if first else None,
            "timeoutSeconds": self.timeout_seconds,
        }


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects to watch, and from which version on.

    ``send_initial_events`` asks for a streaming list (KEP-3157): the state comes as ADDED events and a bookmark ends it; it needs
    ``resource_version_match="NotOlderThan"`` and bookmarks, which are set here.
    """

    label_selector: Labels | None = None
    field_selector: Fields | None = None
    resource_version: str | None = None
    allow_watch_bookmarks: bool = True
    timeout_seconds: int | None = None
    send_initial_events: bool = False

    def query(self) -> dict[str, str | int | bool | None]:
        return {
            "watch": True,
            "labelSelector": label_text(self.label_selector),
            "fieldSelector": field_text(self.field_selector),
            "resourceVersion": self.resource_version,
            "resourceVersionMatch": "NotOlderThan" if self.send_initial_events else None,
            "sendInitialEvents": True if self.send_initial_events else None,
            "allowWatchBookmarks": True if self.allow_watch_bookmarks or self.send_initial_events else None,
            "timeoutSeconds": self.timeout_seconds,
        }


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to write. ``dry_run`` does everything but store. ``field_validation`` Strict refuses unknown and duplicate fields.

    ``field_manager``: who is said to own the fields written; default: the program's name as its User-Agent has it. ``force`` is for apply.
    """

    dry_run: bool = False
    field_manager: str = ""
    field_validation: Validation | None = None
    force: bool | None = None

    def __post_init__(self) -> None:
        _check(self, field_validation=Validation)

    def query(self) -> dict[str, str | int | bool | None]:
        return {
            "dryRun": "All" if self.dry_run else None,
            "fieldManager": self.field_manager or None,
            "fieldValidation": self.field_validation,
            "force": self.force,
        }

    def over(self, defaults: WriteOptions) -> WriteOptions:
        """These, and where they say nothing, ``defaults``."""
        return WriteOptions(
            dry_run=self.dry_run or defaults.dry_run,
            field_manager=self.field_manager or defaults.field_manager,
            field_validation=self.field_validation or defaults.field_validation,
            force=self.force if self.force is not None else defaults.force,
        )


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to delete. ``grace_period_seconds`` 0 deletes a pod without waiting for its node.

    ``uid`` and ``resource_version`` are preconditions: the server answers Conflict if the object has others.
    ``ignore_store_read_error``: also delete an object that the server can no longer read from its store. No finalizer runs and
    nothing that depends on it is collected; the server takes it alone, not with other options (KEP-3926).
    """

    propagation_policy: Propagation | None = None
    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False
    ignore_store_read_error: bool = False

    def __post_init__(self) -> None:
        _check(self, "grace_period_seconds", propagation_policy=Propagation)

    def body(self) -> bytes:
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if self.propagation_policy is not None:
            options["propagationPolicy"] = self.propagation_policy
        if self.grace_period_seconds is not None:
            options["gracePeriodSeconds"] = self.grace_period_seconds
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        if any(preconditions.values()):
            options["preconditions"] = {name: value for name, value in preconditions.items() if value}
        if self.dry_run:
            options["dryRun"] = ["All"]
        if self.ignore_store_read_error:
            options["ignoreStoreReadErrorWithClusterBreakingPotential"] = True
        return msgspec.json.encode(options)
