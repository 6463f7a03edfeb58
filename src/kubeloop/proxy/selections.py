"""The rules of one request: their interface, and the selection of no rule."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal, Protocol

from kubeloop.proxy.rules import Examination, HeadMetadata, Rewritten
from kubeloop.types import JSONObject


class SelectedRules(Protocol):
    """The rules of one request. ``RuleSelection`` documents the members."""

    @property
    def rules(self) -> tuple[str, ...]: ...
    @property
    def writes(self) -> Literal["Deny", "Pass", "Reverse"]: ...
    def policy_of(self, rules: Collection[str]) -> Literal["Deny", "Pass", "Reverse"]: ...
    @property
    def synchronous(self) -> bool: ...
    @property
    def immutable_visibility(self) -> bool: ...
    @property
    def may_hide(self) -> bool: ...
    @property
    def may_change(self) -> bool: ...
    def may_change_path(self, *path: str) -> bool: ...
    def examine(self, head: HeadMetadata) -> Examination: ...
    def hidden_by(self, head: HeadMetadata) -> str: ...
    def rewrite(self, tree: JSONObject) -> Rewritten: ...
    async def rewrite_async(self, tree: JSONObject) -> Rewritten: ...


class Unruled:
    """The selection of no rule: every object is visible and unchanged.

    It serves reads of resources that earlier rules concerned, whose clients may have to list again.
    """

    rules: tuple[str, ...] = ()
    writes: Literal["Deny", "Pass", "Reverse"] = "Pass"
    synchronous = True
    immutable_visibility = True
    may_hide = False
    may_change = False

    def policy_of(self, rules: Collection[str]) -> Literal["Deny", "Pass", "Reverse"]:  # noqa: ARG002 - the interface
        """Return Pass."""
        return "Pass"

    def may_change_path(self, *path: str) -> bool:  # noqa: ARG002 - the interface
        """Return False."""
        return False

    def examine(self, head: HeadMetadata) -> Examination:  # noqa: ARG002 - the interface
        """Return UNTOUCHED."""
        return Examination.UNTOUCHED

    def hidden_by(self, head: HeadMetadata) -> str:
        """Not available, since no object is hidden."""
        raise NotImplementedError(head.name)

    def rewrite(self, tree: JSONObject) -> Rewritten:
        """Return the object."""
        return Rewritten(tree, (), changed=False)

    async def rewrite_async(self, tree: JSONObject) -> Rewritten:
        """Return the object."""
        return Rewritten(tree, (), changed=False)


UNRULED: Final = Unruled()
