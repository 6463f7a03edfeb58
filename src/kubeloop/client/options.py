"""Options of lists, watches, writes and deletions, and their form in the URL or body.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/ and apimachinery pkg/apis/meta/v1/types.go.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypeVar, get_args

import msgspec

from kubeloop.client.selector_text import Fields, Labels, field_text, label_text
from kubeloop.meta.type_checks import described, described_word

Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]
Match: TypeAlias = Literal["Exact", "NotOlderThan"]
Validation: TypeAlias = Literal["Strict", "Warn", "Ignore"]
Expiry: TypeAlias = Literal["raise", "relist"]

PAGE_SIZE = 500


def _check(options: msgspec.Struct, *numbers: str, **choices: object) -> None:
    """Raise ValueError if an option in ``numbers`` is negative or no integer, or one in ``choices`` is not in its ``Literal``."""
    for name in numbers:
        value = getattr(options, name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise ValueError(f"{name}={described_word(value)}: must be a whole number, 0 or more")
    for name, alias in choices.items():
        value, known = getattr(options, name), get_args(alias)
        if value is not None and value not in known:
            raise ValueError(f"{name}={described_word(value)}: must be one of {', '.join(known)}")


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The objects to list, and their version.

    >>> ListOptions(label_selector={"app": "web"}, limit=500).query()["labelSelector"]
    'app=web'
    >>> page = await client.list_page(Pod, options=ListOptions(limit=1, timeout_seconds=10))

    ``resource_version`` None requests the newest state; "0" accepts any state that the server has in memory, possibly older than a
    state that you saw before. ``limit`` is the size of a page; 0 requests all objects in one response, which costs the server memory.
    ``continue_token`` continues an earlier list. ``timeout_seconds`` is the server's time limit for one request.
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
        """Return the parameters of the URL."""
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
    """The objects to watch, and the version to start from.

    >>> WatchOptions(send_initial_events=True).query()["resourceVersionMatch"]
    'NotOlderThan'

    ``timeout_seconds``: the server ends a connection after so many seconds, and the watch opens another; None: five to ten minutes.
    ``send_initial_events`` requests a streaming list (KEP-3157): the state arrives as ADDED events, and a bookmark ends it. It implies
    ``resource_version_match="NotOlderThan"`` and bookmarks. ``client.watch`` refuses it, since it lists the existing objects itself.
    """

    label_selector: Labels | None = None
    field_selector: Fields | None = None
    resource_version: str | None = None
    allow_watch_bookmarks: bool = True
    timeout_seconds: int | None = None
    send_initial_events: bool = False

    def query(self) -> dict[str, str | int | bool | None]:
        """Return the parameters of the URL."""
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


S = TypeVar("S", ListOptions, WatchOptions)


def completed(options_type: type[S], options: S | None, **keywords: Any) -> S:
    """Return the options of a call: those of ``options``, except that keywords other than None take precedence.

    Raises:
        TypeError: ``options`` has another type. ValueError: a value is not valid.
    """
    if options is not None and not isinstance(options, options_type):
        raise TypeError(f"options={described(options)}: must be {options_type.__name__}")
    given = {name: value for name, value in keywords.items() if value is not None}
    return options_type(**given) if options is None else msgspec.structs.replace(options, **given)


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a write.

    >>> settings = ConfigMap(metadata=ObjectMeta(name="settings"))
    >>> settings = await client.create(settings, options=WriteOptions(dry_run=True, field_validation="Strict"))
    >>> await client.get(ConfigMap, "settings")
    Traceback (most recent call last):
        ...
    NotFound: ...

    ``dry_run`` does everything except storing the object. ``field_validation="Strict"`` refuses unknown and duplicate fields.
    ``field_manager`` owns the written fields; by default it is the program's name in its User-Agent. ``force`` is for apply.
    """

    dry_run: bool = False
    field_manager: str = ""
    field_validation: Validation | None = None
    force: bool | None = None

    def __post_init__(self) -> None:
        _check(self, field_validation=Validation)

    def query(self) -> dict[str, str | int | bool | None]:
        """Return the parameters of the URL."""
        return {
            "dryRun": "All" if self.dry_run else None,
            "fieldManager": self.field_manager or None,
            "fieldValidation": self.field_validation,
            "force": self.force,
        }

    def over(self, defaults: WriteOptions) -> WriteOptions:
        """Return these options, completed by ``defaults``."""
        return WriteOptions(
            dry_run=self.dry_run or defaults.dry_run,
            field_manager=self.field_manager or defaults.field_manager,
            field_validation=self.field_validation or defaults.field_validation,
            force=self.force if self.force is not None else defaults.force,
        )


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a deletion.

    >>> settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings")))
    >>> await client.delete(ConfigMap, "settings", options=DeleteOptions(uid="another-uid"))
    Traceback (most recent call last):
        ...
    Conflict: ...

    ``grace_period_seconds`` 0 deletes a pod without waiting for its node. ``uid`` and ``resource_version`` are preconditions: the server
    returns Conflict if the object has others. ``ignore_store_read_error`` deletes an object even if the server can no longer read it from
    its store; finalizers are not run and dependents not collected. The server accepts it only without other options (KEP-3926).
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
        """Return the body of the request."""
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
