"""The outcome of an apply for each child of a set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from kubeloop.meta import KubeloopError, Resource

ChildDid: TypeAlias = Literal["created", "updated", "unchanged", "pruned", "deleting", "failed"]


class ForeignChild(KubeloopError):
    """An existing object with a child's name belongs to another owner, or to none and is not adopted; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ChildOutcome:
    """The result of an apply for one child.

    Attributes:
        kind: Class of the child.
        namespace: Its namespace; empty for cluster-scoped kinds.
        name: Its name.
        did: "created", "updated", "unchanged", "pruned", "deleting" (an object of its name is being deleted; the child is created when it
            is gone) or "failed".
        object: The last known state of the child, from the server or the cache; None if it is unknown.
        error: The error; None if it succeeded.
        sent: Whether a write was sent. (A write without changes counts as unchanged.)

    Example:
        >>> ChildOutcome(ConfigMap, "shop", "settings", "created").did
        'created'
    """

    kind: type[Resource]
    namespace: str
    name: str
    did: ChildDid
    object: Resource | None = None
    error: Exception | None = None
    sent: bool = False

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        why = f": {self.error}" if self.error is not None else ""
        return f"{self.kind.kind} {self.name}{where} {self.did}{why}"


class ChildrenFailed(KubeloopError):
    """Some children could not be applied or pruned. ``report`` has the result of each child, including the successful ones."""

    def __init__(self, report: ChildrenReport) -> None:
        self.report = report
        failed = report.failed
        head = f"{len(failed)} of {len(report)} children failed"
        super().__init__(f"{head}: {'; '.join(map(str, failed))}")


@dataclass(frozen=True, slots=True)
class ChildrenReport:
    """The results of an apply, one for each child, in the order of the writes.

    ``kept`` is the reason why nothing was pruned; empty if children were pruned or none had to be. ``dry_run``: nothing was written.

    Example:
        >>> report = ChildrenReport((ChildOutcome(ConfigMap, "shop", "settings", "created"),))
        >>> report.changed, len(report.failed)
        (True, 0)
    """

    outcomes: tuple[ChildOutcome, ...]
    kept: str = ""
    dry_run: bool = False

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[ChildOutcome]:
        return iter(self.outcomes)

    def did(self, *results: ChildDid) -> list[ChildOutcome]:
        return [one for one in self.outcomes if one.did in results]

    @property
    def created(self) -> list[ChildOutcome]:
        return self.did("created")

    @property
    def updated(self) -> list[ChildOutcome]:
        return self.did("updated")

    @property
    def unchanged(self) -> list[ChildOutcome]:
        return self.did("unchanged")

    @property
    def pruned(self) -> list[ChildOutcome]:
        return self.did("pruned")

    @property
    def failed(self) -> list[ChildOutcome]:
        return self.did("failed")

    @property
    def changed(self) -> bool:
        """Whether a child was created, changed or deleted."""
        return bool(self.did("created", "updated", "pruned"))

    @property
    def objects(self) -> list[Resource]:
        """The desired children that exist now."""
        return [one.object for one in self.did("created", "updated", "unchanged") if one.object is not None]

    def raise_failures(self) -> None:
        """Raise ChildrenFailed if a child failed."""
        if self.failed:
            raise ChildrenFailed(self)

    def __str__(self) -> str:
        """Return the counts in words: ``2 created, 1 unchanged``."""
        counts = Counter(one.did for one in self.outcomes)
        text = ", ".join(f"{counts[word]} {word}" for word in get_args(ChildDid) if counts[word]) or "no children"
        return f"{text} (dry run)" if self.dry_run else text
