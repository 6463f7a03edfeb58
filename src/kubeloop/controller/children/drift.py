"""Drift: differences between an existing child and its desired state, as paths for programs and as a diff for people.

Source: kubectl diff (compares the live object with the result of a dry-run apply); KEP-555.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from kubeloop.client import retry_on_error
from kubeloop.client.waits.trees import tree_of
from kubeloop.controller.children.children import Children
from kubeloop.controller.children.desired import APPLIED, FIELDS_SET, DesiredChild
from kubeloop.controller.children.writer import check_ownership, target, type_of, was_changed
from kubeloop.merge.fields import ElementError, FieldSet, TypeMismatch, compare, path_text
from kubeloop.meta import Resource
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from rich.text import Text

# The values in ``data`` and ``stringData`` of Secrets are masked. As in kubectl diff, a masked value still shows whether it differs.


_SAME: Final = "***"
#: Annotations that contain a copy of the object.
_COPIES: Final = ("kubectl.kubernetes.io/last-applied-configuration",)


def redacted(before: JSONObject | None, after: JSONObject | None) -> tuple[JSONObject | None, JSONObject | None]:
    """Return both sides with the values of Secrets masked; other kinds are returned unchanged."""
    if (before or after or {}).get("kind") != "Secret":
        return before, after
    values: dict[str, tuple[Any, Any]] = {}
    for field in ("data", "stringData"):
        old, new = _field(before, field), _field(after, field)
        for name in old.keys() | new.keys():
            values[f"{field}.{name}"] = old.get(name), new.get(name)
    return _starred(before, values, 0), _starred(after, values, 1)


def _starred(tree: JSONObject | None, values: dict[str, tuple[Any, Any]], side: int) -> JSONObject | None:
    if tree is None:
        return None
    shown = dict(tree)
    for field in ("data", "stringData"):
        if isinstance(tree.get(field), dict):
            shown[field] = {name: _star(values[f"{field}.{name}"], side) for name in tree[field]}
    metadata = tree.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("annotations"), dict):
        annotations = {name: _SAME if name in _COPIES else value for name, value in metadata["annotations"].items()}
        shown["metadata"] = {**metadata, "annotations": annotations}
    return shown


def _star(pair: tuple[Any, Any], side: int) -> str:
    before, after = pair
    if before == after or before is None or after is None:
        return _SAME
    return f"{_SAME} ({'after' if side else 'before'})"


def _field(tree: JSONObject | None, name: str) -> JSONObject:
    value = (tree or {}).get(name)
    return value if isinstance(value, dict) else {}


DriftKind: TypeAlias = Literal["missing", "changed", "extra"]

#: Metadata that each write changes, or that exists only to find drift. It does not count as drift.
_NOISE = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink")
_OURS = (APPLIED, FIELDS_SET)


@dataclass(frozen=True, slots=True)
class Drift:
    """One child whose live state differs from its desired state.

    ``drift_kind`` is "missing" (the child does not exist), "changed", or "extra" (the child is not desired). ``paths`` are the fields that
    an apply would change (``.spec.replicas``); empty if the child is missing or not desired. Values of Secrets are not in ``live``,
    ``desired`` or ``str()``.

    Example:
        >>> drift = Drift(ConfigMap, "shop", "settings", "missing", (), live=None, desired=None)
        >>> drift.title
        'ConfigMap shop/settings'
    """

    kind: type[Resource]
    namespace: str
    name: str
    drift_kind: DriftKind
    paths: tuple[str, ...]
    live: JSONObject | None
    desired: JSONObject | None

    @property
    def title(self) -> str:
        """Kind, namespace and name: ``Deployment shop/web``."""
        return f"{self.kind.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind.kind} {self.name}"

    def lines(self) -> Iterator[str]:
        """Yield the lines of a unified diff of both sides as YAML, as ``kubectl diff`` prints it, without line ends."""
        live, desired = ([] if tree is None else _yaml(tree).splitlines() for tree in (self.live, self.desired))
        yield from difflib.unified_diff(live, desired, f"live {self.title}", f"wanted {self.title}", lineterm="")

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def rich(self) -> Text:
        """Return the diff in colours, for ``rich.print``."""
        from rich.text import Text

        styles = {"+": "green", "-": "red", "@": "cyan"}
        text = Text()
        for line in self.lines():
            bold = line.startswith(("--- ", "+++ "))
            text.append(line + "\n", "bold" if bold else styles.get(line[:1], ""))
        return text


async def find_drift(children: Children, owner: Resource, desired: Sequence[Resource], *, ask: bool = True) -> list[Drift]:
    """Return what ``children.apply(owner, desired)`` would change, without writing.

    Args:
        children: The set of children.
        owner: The owner.
        desired: The children, as for ``apply``.
        ask: Have the server apply each child as a dry run, so that its defaults, admission and other field managers are taken into account;
            requires the permission to patch. False: compare locally with the live objects; fields that a desired child lacks count only if
            this field manager applied them before, and values that the server spells differently (1 for 1000m) count as drift.

    Raises:
        ForeignChild: an existing object with a child's name does not belong to the owner.
        Conflict: other writers kept changing a child.
        ApiError: the server rejects a child; Invalid has the reasons.
        UnplacedChild, OwnershipError, ValueError: see ``Children.apply``.
    """
    plan = await children.plan(owner, desired)
    reader = children.reader
    found: list[Drift] = []
    for child in plan:
        look = functools.partial(_of_child, children, owner, child, ask)
        drift = await retry_on_error(look, was_changed, clock=reader.client.clock)
        if drift is not None:
            found.append(drift)
    for member in await children._to_prune(owner, plan):
        there = await reader.newest(member.kind, member.namespace, member.name)
        if there is not None:
            found.append(_drift(member.kind, member.namespace, member.name, "extra", tree_of(there), None))
    return found


async def _of_child(children: Children, owner: Resource, child: DesiredChild, ask: bool) -> Drift | None:
    live = await children.reader.newest(child.kind, child.namespace, child.name)
    if live is None:
        return _drift(child.kind, child.namespace, child.name, "missing", None, child.tree)
    check_ownership(live, owner, adopt=children.adopts)
    # Bound to the version that was read: concurrent changes would otherwise be reported as drift.
    after = tree_of(await children._dry_run(live, child)) if ask else _merged(live, child, children.field_manager)
    drift = _drift(child.kind, child.namespace, child.name, "changed", tree_of(live), after)
    return drift if drift.paths else None


def _merged(live: Resource, child: DesiredChild, manager: str) -> JSONObject:
    """Return the expected result of an apply, computed locally."""
    type_ = type_of(child.kind)
    before = FieldSet()
    others: list[FieldSet] = []
    for entry in live.metadata.managed_fields:
        fields = FieldSet.from_json(entry.fields())
        if (entry.manager, entry.operation, entry.subresource) == (manager, "Apply", ""):
            before = fields
        else:
            others.append(fields)
    for fields in others:
        before = before - fields  # fields that other managers own too stay
    try:
        return target(tree_of(live), child.annotated(APPLIED, child.digest), before.to_json(), type_)
    except (TypeMismatch, ElementError) as error:
        raise ValueError(f"{child.kind.kind} {child.name}: {error}") from error


def _drift(
    kind: type[Resource], namespace: str, name: str, drift_kind: DriftKind, live: JSONObject | None, desired: JSONObject | None
) -> Drift:
    before, after = (None if tree is None else _quiet(tree) for tree in (live, desired))
    paths: tuple[str, ...] = ()
    if before is not None and after is not None:
        difference = compare(before, after, type_of(kind))
        changed = (difference.added | difference.removed | difference.modified).leaves()
        paths = tuple(sorted(path_text(path) for path in changed))
    before, after = redacted(before, after)
    return Drift(kind, namespace, name, drift_kind, paths, before, after)


def _quiet(tree: JSONObject) -> JSONObject:
    """Return the tree without fields that change at every write, and without the annotations of this package."""
    tree = _without_nulls(tree)
    metadata = {name: value for name, value in tree.get("metadata", {}).items() if name not in _NOISE}
    annotations = {name: value for name, value in metadata.pop("annotations", {}).items() if name not in _OURS}
    if annotations:
        metadata["annotations"] = annotations
    quiet = {name: value for name, value in tree.items() if name not in ("metadata", "status")}
    head: JSONObject = {name: quiet.pop(name) for name in ("apiVersion", "kind") if name in quiet}
    return {**head, "metadata": metadata, **quiet}


def _without_nulls(value: Any) -> Any:
    """Return the value without null fields, because null and a missing field mean the same."""
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _yaml(tree: JSONObject) -> str:
    from kubeloop.codec import write_yaml

    return write_yaml(tree)
