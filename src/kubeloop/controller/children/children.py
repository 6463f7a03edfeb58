"""Children: applies the objects that an owner consists of, and deletes objects that it no longer declares.

Source of the rules: Kubernetes documentation, "Server-Side Apply" (using it in a controller) and "Owners and Dependents".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeVar

from kubeloop.client import Client, retry_on_error
from kubeloop.controller.builder.controller import ControllerBase
from kubeloop.controller.children.desired import SET_LABEL, DesiredChild, UnplacedChild, check_set_name, desired_child, set_label
from kubeloop.controller.children.lookup import ChildReader, Member
from kubeloop.controller.children.report import ChildOutcome, ChildrenReport
from kubeloop.controller.children.writer import (
    ApplyWriter,
    ChildWriter,
    PatchWriter,
    check_ownership,
    delete_child,
    is_part,
    outcome_of,
    was_changed,
)
from kubeloop.meta import GroupKind, KubeloopError, Resource, kind_info
from kubeloop.meta.type_checks import described_word

T = TypeVar("T")

#: Each kind comes after kinds that its creation may need. Source: the order of kustomize (api/resid, orderFirst and orderLast) and Helm.
_FIRST: Final = (
    GroupKind("", "Namespace"),
    GroupKind("apiextensions.k8s.io", "CustomResourceDefinition"),
    GroupKind("", "ResourceQuota"),
    GroupKind("", "LimitRange"),
    GroupKind("scheduling.k8s.io", "PriorityClass"),
    GroupKind("storage.k8s.io", "StorageClass"),
    GroupKind("", "ServiceAccount"),
    GroupKind("rbac.authorization.k8s.io", "ClusterRole"),
    GroupKind("rbac.authorization.k8s.io", "Role"),
    GroupKind("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    GroupKind("rbac.authorization.k8s.io", "RoleBinding"),
    GroupKind("", "Secret"),
    GroupKind("", "ConfigMap"),
    GroupKind("", "PersistentVolume"),
    GroupKind("", "PersistentVolumeClaim"),
    GroupKind("networking.k8s.io", "NetworkPolicy"),
    GroupKind("", "Service"),
)
#: Workloads, and the kinds that observe or protect workloads.
_LAST: Final = (
    GroupKind("", "Pod"),
    GroupKind("apps", "ReplicaSet"),
    GroupKind("apps", "DaemonSet"),
    GroupKind("apps", "StatefulSet"),
    GroupKind("apps", "Deployment"),
    GroupKind("batch", "Job"),
    GroupKind("batch", "CronJob"),
    GroupKind("policy", "PodDisruptionBudget"),
    GroupKind("autoscaling", "HorizontalPodAutoscaler"),
    GroupKind("networking.k8s.io", "Ingress"),
    GroupKind("apiregistration.k8s.io", "APIService"),
    GroupKind("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    GroupKind("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
)
_RANKS: Final = {kind: rank for rank, kind in enumerate(_FIRST)} | {kind: len(_FIRST) + 1 + rank for rank, kind in enumerate(_LAST)}


def rank(kind: GroupKind) -> int:
    """Return the rank of a kind; lower ranks are applied first. Unlisted kinds come between configuration and workloads."""
    return _RANKS.get(kind, len(_FIRST))


def in_order(items: Iterable[tuple[GroupKind, T]]) -> list[T]:
    """Return the second element of each pair, sorted by the ``rank`` of its kind; elements of equal rank keep their order."""
    return [item for _, item in sorted(items, key=lambda pair: rank(pair[0]))]


class Children:
    """Applies the children of an owner as a set: creates, updates and prunes them.

    Guarantees
        An unchanged child costs no request: it is compared with the controller's cache (with the server where there is no cache).
        Fields of other writers stay, unless the desired child has another value for them. Fields that an earlier desired child had, and the
        present one lacks, are removed.
        Only objects that have the owner as their controller and carry the set's label are pruned, and only in the state that was read.
        An existing object with a child's name that does not belong to the owner is never written (``ForeignChild``).
        Kinds are applied in the order of their dependencies. Pruning comes last, in the opposite order, and not at all if a child failed.
        The failure of one child does not stop the others; the report lists each.

    Not guaranteed
        Atomicity: this is not a transaction. Pruning of kinds that are neither among ``kinds`` nor among the desired children.
        Protection against another program that creates an object with a child's name at the same time: the object is adopted if it has
        no controller; otherwise the server rejects the write.

    Args:
        source: A controller, of which the caches, the name (as field manager) and the kinds in ``owns`` are used; or a client, in which
            case all reads go to the server.
        name: Name of the set, if one owner has several.
        kinds: Kinds to prune. None: the kinds that the controller owns.
        field_manager: Field manager of the writes. Empty: the controller's name; required with a client.
        mode: "apply" is server-side apply; "patch" creates, and then sends merge patches.
        force: An apply takes over fields of other managers (Kubernetes' advice for controllers); otherwise it fails with Conflict.
        adopt: Take over existing objects that have a child's name and no controller.

    Raises
        ValueError: ``name`` is not valid in a label, ``mode`` is unknown, or ``source`` is a client and ``field_manager`` is empty.

    Example:
        >>> shop = await client.create(ConfigMap(metadata=ObjectMeta(name="shop")))
        >>> children = Children(client, field_manager="shops", kinds=[Secret])
        >>> report = await children.apply(shop, [Secret(metadata=ObjectMeta(name="token"))])
        >>> [child.name for child in report.created]
        ['token']
    """

    def __init__(
        self,
        source: ControllerBase[Any] | Client,
        *,
        name: str = "main",
        kinds: Sequence[type[Resource]] | None = None,
        field_manager: str = "",
        mode: Literal["apply", "patch"] = "apply",
        force: bool = True,
        adopt: bool = False,
    ) -> None:
        check_set_name(name)
        if mode not in ("apply", "patch"):
            raise ValueError(f'mode={described_word(mode)}: children are written by "apply" or "patch"')
        if isinstance(source, ControllerBase):
            declared = type(source)._declaration()
            field_manager = field_manager or declared.name
            kinds = [owned.kind for owned in declared.owns] if kinds is None else kinds
        if not field_manager:
            raise ValueError("Children with a client need field_manager=..., the same name in each run of the program")
        self.name = name
        self.field_manager = field_manager
        self._source = source
        self._kinds = tuple(kinds or ())
        self._mode = mode
        self._force = force
        self._adopt = adopt
        self._made: tuple[ChildReader, ChildWriter] | None = None

    @property
    def reader(self) -> ChildReader:
        """The reader that looks up children."""
        return self._tools()[0]

    @property
    def adopts(self) -> bool:
        return self._adopt

    async def apply(
        self, owner: Resource, desired: Iterable[Resource], *, prune: bool = True, dry_run: bool = False, check: bool = True
    ) -> ChildrenReport:
        """Apply the children of ``owner``: create missing ones, update changed ones, and prune children that are no longer desired.

        Args:
            owner: The owner; it becomes the controller of each child.
            desired: The children: new objects that set only the fields to apply. A child without a namespace gets its owner's.
            prune: Delete children of the set that are not desired any more. False: do not delete them.
            dry_run: The server processes but does not store the writes, and the report shows what would change.
            check: Raise if children failed. False: failures are only in the report.

        Returns:
            The result for each child.

        Raises:
            ChildrenFailed: some children failed (``check``); its report has all results.
            UnplacedChild: two children are the same object, or a child has no name or namespace; nothing was sent.
            OwnershipError: ``owner`` cannot own a child (another namespace, cluster-scoped); nothing was sent.
            ValueError: a child was read from a server, or a field has a value of a wrong type; nothing was sent.
        """
        reader, writer = self._tools()
        plan = await self.plan(owner, desired)
        outcomes = [await self._one(reader, writer, owner, child, dry_run) for child in plan]
        kept = "" if prune else "pruning was not requested"
        if any(one.did == "failed" for one in outcomes):
            kept = kept or "a child failed, and what it replaces may still be needed"
        if not kept:
            pruned = [await self._pruned(reader, writer, owner, one, dry_run) for one in await self._to_prune(owner, plan)]
            outcomes += [one for one in pruned if one is not None]
        report = ChildrenReport(tuple(outcomes), kept, dry_run)
        if check:
            report.raise_failures()
        return report

    async def prepare(self, owner: Resource, desired: Iterable[Resource]) -> None:
        """Examine the kinds of the children ahead of the first apply, which otherwise spends tens of milliseconds on it.

        A controller calls it in ``start``. No object is read or written; only the API discovery of unknown kinds is requested.

        Args:
            owner: An example of an owner, with a name and any uid.
            desired: An example of each child.

        Raises:
            UnplacedChild, OwnershipError, ValueError: see ``apply``.
        """
        writer = self._tools()[1]
        for child in await self.plan(owner, desired):
            # The comparison decodes and encodes the kind, and computes its field types.
            writer.is_so(writer.stored_form(child), child)

    async def plan(self, owner: Resource, desired: Iterable[Resource]) -> list[DesiredChild]:
        """Return the children to apply, in order.

        Raises:
            UnplacedChild, OwnershipError, ValueError: see ``apply``.
        """
        client = self.reader.client
        children = [await desired_child(client, owner, child, self.name) for child in desired]
        keys = [child.key for child in children]
        for index, child in enumerate(children):
            if child.key in keys[:index]:
                raise UnplacedChild(f"{child.kind.kind} {child.name} is twice among the children of {owner.kind} {owner.metadata.name}")
        return in_order((child.group_kind, child) for child in children)

    async def _to_prune(self, owner: Resource, plan: Sequence[DesiredChild]) -> list[Member]:
        """Return the existing children of the set that are not in ``plan``, in the order of their deletion: dependents first."""
        keys = {child.key for child in plan}
        existing: dict[tuple[Any, str, str], Member] = {}
        for kind in dict.fromkeys([*self._kinds, *(child.kind for child in plan)]):
            group_kind = kind_info(kind).gvk.group_kind
            namespaced = (await self.reader.client.mapping(kind)).namespaced
            if owner.metadata.namespace and not namespaced:
                continue  # a namespaced owner cannot have cluster-scoped children
            where = owner.metadata.namespace or None
            for member in await self.reader.members(kind, where, owner, (SET_LABEL, set_label(self.name, owner))):
                key = (group_kind, member.namespace, member.name)
                if key not in keys:
                    existing.setdefault(key, member)
        return [member for _, member in sorted(existing.items(), key=lambda item: -rank(item[0][0]))]

    async def _dry_run(self, live: Resource, child: DesiredChild) -> Resource:
        """Return the object that the server would store if ``child`` were applied to ``live``. The apply is a dry run.

        Raises:
            Conflict: the object is no longer at the version of ``live``, or (without ``force``) other managers own fields, which the causes
                name.
        """
        return await self._tools()[1].update(live, child, dry_run=True, exactly=True)

    async def _one(self, reader: ChildReader, writer: ChildWriter, owner: Resource, child: DesiredChild, dry_run: bool) -> ChildOutcome:
        """Apply one child. Look it up in the cache first, and at the server if the cache turns out to lag behind."""
        fresh = False

        async def attempt() -> ChildOutcome:
            nonlocal fresh
            live = await (reader.newest if fresh else reader.get)(child.kind, child.namespace, child.name)
            if not fresh and (live is None or live.metadata.deletion_timestamp is not None):
                # The cache may lag behind a creation or deletion: applying blindly could write to an object of another owner.
                live = await reader.newest(child.kind, child.namespace, child.name)
            fresh = True
            if live is None:
                return outcome_of(child, None, await writer.create(child, dry_run=dry_run), dry_run=dry_run)
            check_ownership(live, owner, adopt=self._adopt)
            if live.metadata.deletion_timestamp is not None:
                return ChildOutcome(child.kind, child.namespace, child.name, "deleting", live)
            if writer.is_so(live, child):
                return ChildOutcome(child.kind, child.namespace, child.name, "unchanged", live)
            return outcome_of(child, live, await writer.update(live, child, dry_run=dry_run), dry_run=dry_run)

        try:
            return await retry_on_error(attempt, was_changed, clock=reader.client.clock)
        except (KubeloopError, ValueError, TypeError) as error:  # the other children must still be applied; the report has the error
            return ChildOutcome(child.kind, child.namespace, child.name, "failed", None, error)

    async def _pruned(self, reader: ChildReader, writer: ChildWriter, owner: Resource, extra: Member, dry_run: bool) -> ChildOutcome | None:
        """Prune one child, and return its outcome; None if it no longer belongs to the set."""
        live: Resource | None = None

        async def attempt() -> bool:
            nonlocal live
            live = await reader.newest(extra.kind, extra.namespace, extra.name)
            if live is None or live.metadata.deletion_timestamp is not None:
                return True
            if not is_part(live, owner, set_label(self.name, owner)):
                return False
            await delete_child(reader.client, live, dry_run=dry_run)
            return True

        try:
            gone = await retry_on_error(attempt, was_changed, clock=reader.client.clock)
        except (KubeloopError, ValueError, TypeError) as error:  # the other children must still be pruned; the report has the error
            return ChildOutcome(extra.kind, extra.namespace, extra.name, "failed", live, error)
        writer.forget((kind_info(extra.kind).gvk.group_kind, extra.namespace, extra.name))
        return ChildOutcome(extra.kind, extra.namespace, extra.name, "pruned", live, sent=True) if gone else None

    def _tools(self) -> tuple[ChildReader, ChildWriter]:
        if self._made is None or self._made[0].client is not self._client():
            client = self._client()
            made = ApplyWriter if self._mode == "apply" else PatchWriter
            controller = self._source if isinstance(self._source, ControllerBase) else None
            self._made = ChildReader(client, controller), made(client, self.field_manager, force=self._force)
        return self._made

    def _client(self) -> Client:
        return self._source.client if isinstance(self._source, ControllerBase) else self._source
