"""What became of each child of a set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from kubeloop.meta import KubeloopError, Resource

ChildDid: TypeAlias = Literal["created", "updated", "unchanged", "pruned", "deleting", "failed"]


class ForeignChild(KubeloopError):
    """An object of a child's name is there and belongs to somebody else; the text says to whom, and what to do."""


@dataclass(frozen=True, slots=True)
class ChildOutcome:
    """What was done for one child.

    ``object`` is the child as the server or the cache has it, None if it failed. ``deleting``: one of its name is still going; the child
    is made when it is gone. ``sent``: whether a write was sent (a write without changes counts as unchanged).
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
    """Some children could not be applied or pruned; the others were. ``report`` tells of all of them."""

    def __init__(self, report: ChildrenReport) -> None:
        self.report = report
        failed = report.failed
        head = f"{len(failed)} of {len(report)} children failed"
        super().__init__(f"{head}: {'; '.join(map(str, failed))}")


@dataclass(frozen=True, slots=True)
class ChildrenReport:
    """What was done for each child, in the order in which it was done. ``kept``: why nothing was pruned, "" if that was looked at."""

    outcomes: tuple[ChildOutcome, ...]
    kept: str = ""
    dry_run: bool = False

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[ChildOutcome]:
        return iter(self.outcomes)

    def did(self, *what: ChildDid) -> list[ChildOutcome]:
        return [one for one in self.outcomes if one.did in what]

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
        """Whether anything was made, changed or deleted."""
        return bool(self.did("created", "updated", "pruned"))

    @property
    def objects(self) -> list[Resource]:
        """The children that are there and wanted."""
        return [one.object for one in self.did("created", "updated", "unchanged") if one.object is not None]

    def raise_failures(self) -> None:
        """Raises ChildrenFailed: some failed."""
        if self.failed:
            raise ChildrenFailed(self)

    def __str__(self) -> str:
        """``2 created, 1 unchanged``."""
        counts = Counter(one.did for one in self.outcomes)
        text = ", ".join(f"{counts[word]} {word}" for word in get_args(ChildDid) if counts[word]) or "no children"
        return f"{text} (dry run)" if self.dry_run else text
