"""Each verb of the client and each helper of controllers, with kinds that require fields and kinds that do not. On both servers."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.api.core.v1 import Event as CoreEvent
from kubeloop.cache import InformerFactory
from kubeloop.client import Client, OperationResult, extract
from kubeloop.controller import (
    Children,
    Controller,
    EventRecorder,
    HandlerController,
    KeyController,
    Manager,
    StatusWriter,
    add_finalizer,
    controller_of,
    find_drift,
    get_condition,
    has_condition,
    has_finalizer,
    is_controlled_by,
    on_change,
    on_create,
    path_changed,
    remove_condition,
    remove_finalizer,
    set_condition,
    set_controller_reference,
    set_owner_reference,
    state_of,
    wait_for_children,
)
from kubeloop.meta import ObjectKey, ObjectMeta, Resource
from kubeloop.meta.model import replace
from tests.controller.helpers.kinds import CASES, MANAGER, Case

pytestmark = pytest.mark.server

FINALIZER = "example.com/helpers"
Use = Callable[[Client, Case], Awaitable[None]]


# Verbs of the client.


async def create(client: Client, case: Case) -> None:
    made = await client.create(case.make())
    found = await client.get(case.cls, "a")
    assert found == made
    assert case.cls.from_yaml(found.to_yaml()).to_dict()["metadata"]["uid"] == made.metadata.uid
    assert case.cls.from_dict(found.to_dict()) == found
    assert repr(found).startswith(case.cls.__name__)
    assert [str(getattr(found, name)) for name in found.__struct_fields__]


async def copies(client: Client, case: Case) -> None:
    made = await client.create(case.make())
    for twin in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), replace(made, metadata=made.metadata)):
        assert twin == made
        assert await client.update(twin) == made, "nothing is changed by a copy"


async def metadata(client: Client, case: Case) -> None:
    made = await client.create(case.make())
    assert (await client.get_metadata(case.cls, "a")).metadata.uid == made.metadata.uid
    listed = await client.list_metadata(case.cls, namespace=client.namespace)
    assert [one.metadata.uid for one in listed] == [made.metadata.uid]
    async with client.watch_metadata(case.cls, namespace=client.namespace, timeout=10) as events:
        assert (await anext(aiter(events))).object.metadata.uid == made.metadata.uid


async def lists(client: Client, case: Case) -> None:
    made = await client.create(case.make())
    assert list(await client.list(case.cls, namespace=client.namespace)) == [made]
    assert [one async for one in client.list(case.cls, namespace=client.namespace)] == [made]
    assert list(await client.list_page(case.cls, limit=1, namespace=client.namespace)) == [made]


async def watch(client: Client, case: Case) -> None:
    made = await client.create(case.make())
    async with client.watch(case.cls, namespace=client.namespace, timeout=10) as events:
        found = await anext(aiter(events))
        assert (found.type, found.object) == ("ADDED", made)
        await client.delete(made)
        async for event in events:
            if event.type == "DELETED":
                break


async def update(client: Client, case: Case) -> None:
    made = await client.create(case.make())
    made.metadata.labels["a"] = "b"
    case.change(made)
    updated = await client.update(made)
    assert updated.metadata.labels == {"a": "b"}
    assert not case.has_spec or updated.spec == made.spec


async def update_status(client: Client, case: Case) -> None:
    if not case.has_status:
        return
    made = await client.create(case.make())
    case.report(made)
    assert (await client.update_status(made)).status == made.status
    again = await client.get(case.cls, "a")
    case.change(again)
    assert (await client.update(again)).status == made.status


async def patch_with_a_tree(client: Client, case: Case) -> None:
    await client.create(case.make())
    patched = await client.patch(case.cls, "a", {"metadata": {"labels": {"a": "b"}}})
    assert patched.metadata.labels == {"a": "b"}
    operations = [{"op": "add", "path": "/metadata/annotations", "value": {"c": "d"}}]
    assert (await client.patch(case.cls, "a", operations, type="json")).metadata.annotations == {"c": "d"}
    partial = await client.patch_metadata(case.cls, "a", {"metadata": {"labels": {"a": "e"}}})
    assert partial.metadata.labels == {"a": "e"}
    partial.metadata.labels["f"] = "g"
    assert (await client.patch_metadata(case.cls, partial)).metadata.labels == {"a": "e", "f": "g"}


async def patch_with_a_part(client: Client, case: Case) -> None:
    await client.create(case.make())
    part = case.make(labels={"a": "b"})
    case.change(part)
    patched = await client.patch(case.cls, "a", part)
    assert patched.metadata.labels == {"a": "b"}
    assert not case.has_spec or patched.spec == part.spec


async def patch_changes(client: Client, case: Case) -> None:
    made = await client.create(case.make())
    assert await client.patch(made) is made, "nothing was changed"
    made.metadata.labels["a"] = "b"
    case.change(made)
    patched = await client.patch(made)
    assert patched.metadata.labels == {"a": "b"}
    assert not case.has_spec or patched.spec == made.spec
    case.report(patched)
    if case.has_status:
        assert (await client.patch(patched, subresource="status")).status == patched.status


async def apply(client: Client, case: Case) -> None:
    applied = await client.apply(case.make(labels={"a": "b"}), field_manager=MANAGER)
    owned = await client.get_owned(case.cls, "a", field_manager=MANAGER)
    assert (owned.metadata.labels, owned) == ({"a": "b"}, extract(applied, MANAGER))
    owned.metadata.labels["c"] = "d"
    case.change(owned)
    again = await client.apply(owned, field_manager=MANAGER)
    assert again.metadata.labels == {"a": "b", "c": "d"}
    assert not case.has_spec or again.spec == owned.spec
    assert await client.apply(owned, field_manager=MANAGER) == again


async def apply_a_status(client: Client, case: Case) -> None:
    if not case.has_status:
        return
    await client.create(case.make())
    said = case.make()
    case.report(said)
    applied = await client.apply(said, field_manager=MANAGER, subresource="status")
    assert applied.status == said.status
    owned = await client.get_owned(case.cls, "a", field_manager=MANAGER, subresource="status")
    assert owned.status == said.status
    await client.apply(owned, field_manager=MANAGER, subresource="status")


async def upgrade_ownership(client: Client, case: Case) -> None:
    await client.with_options(field_manager="older").create(case.make(labels={"a": "b"}))
    upgraded = await client.upgrade_ownership(case.cls, "a", updaters=["older"], field_manager=MANAGER)
    assert {(one.manager, one.operation) for one in upgraded.metadata.managed_fields} == {(MANAGER, "Apply")}


async def change(client: Client, case: Case) -> None:
    await client.create(case.make())
    changed = await client.update_with_retry(case.cls, "a", case.change)
    case.change(wanted := case.make())
    assert not case.has_spec or changed.spec == wanted.spec
    if case.has_status:
        reported = await client.update_with_retry(case.cls, "a", case.report, subresource="status")
        assert reported.status.count == 3


async def create_or_update(client: Client, case: Case) -> None:
    for did in ("created", "unchanged"):
        assert (await client.create_or_update(case.make(), case.change)).operation == did or not case.has_spec

    def label(obj: Resource) -> None:
        obj.metadata.labels["a"] = "b"

    assert (await client.create_or_update(case.make(), label)).operation == "updated"
    assert (await client.create_or_update(case.make(), label)).operation == "unchanged"


async def create_or_patch(client: Client, case: Case) -> None:
    def both(obj: Resource) -> None:
        obj.metadata.labels["a"] = "b"
        case.change(obj)
        case.report(obj)

    assert (await client.create_or_patch(case.make(), both)).operation == "created"
    expected = "updatedStatusOnly" if case.has_status else "unchanged"
    assert (await client.create_or_patch(case.make(), both)).operation == expected
    assert (await client.create_or_patch(case.make(), both)).operation == "unchanged"


async def delete(client: Client, case: Case) -> None:
    await client.delete(await client.create(case.make()))
    await client.create(case.make())
    await client.delete(case.cls, "a")
    await client.create(case.make("b"))
    await client.delete_collection(case.cls, namespace=client.namespace)
    assert not list(await client.list(case.cls, namespace=client.namespace))


async def subresource(client: Client, case: Case) -> None:
    if not case.has_status:
        return
    made = await client.create(case.make())
    status = client.subresource(case.cls, "a", "status")
    assert await status.get(case.cls) == made
    case.report(made)
    updated = await status.update(made)
    assert updated.status == made.status
    patched = await status.patch(case.cls, {"status": {"count": 4}})
    assert patched.status.count == 4


async def waits(client: Client, case: Case) -> None:
    made = await client.create(case.make())
    assert await client.wait_created(case.cls, "a", timeout=10) == made
    assert await client.wait_ready(case.cls, "a", timeout=10) == made
    assert await client.wait_for(case.cls, "a", lambda obj: obj.metadata.uid, timeout=10) == made
    met = await client.wait_for_events(case.cls, lambda event: event.type == "ADDED", namespace=client.namespace, timeout=10)
    assert met.object == made
    await client.delete(made)
    await client.wait_gone(case.cls, "a", timeout=10)


# Helpers of controllers.


async def status_writer(client: Client, case: Case) -> None:
    made = await client.create(case.make())
    writer = StatusWriter(client)
    assert (await writer.write(made)).operation is OperationResult.UNCHANGED
    if not case.has_status:
        return
    case.report(made)
    if case.has_spec:
        made.spec = None  # only the status is of concern
    written = await writer.write(made)
    assert (written.operation, written.object.status) == (OperationResult.UPDATED_STATUS_ONLY, made.status)
    assert (await writer.write(written.object)).operation is OperationResult.UNCHANGED
    wrong = await client.get(case.cls, "a")
    assert wrong.status is not None
    wrong.status.count = "three"
    with pytest.raises(ValueError, match=r'^\w+ "[\w./-]+": status\.count: expected int( \| null)?, got str$'):
        await writer.write(wrong)


async def status_writer_on_conflict(client: Client, case: Case) -> None:
    if not case.has_status:
        return
    made = await client.create(case.make())
    other = await client.get(case.cls, "a")
    case.report(other)
    set_condition(other, "Theirs", True, reason="Up")
    await StatusWriter(client).write(other)
    case.report(made)
    set_condition(made, "Mine", True, reason="Up")
    written = (await StatusWriter(client).write(made)).object
    assert has_condition(written, "Mine")
    assert has_condition(written, "Theirs")


async def conditions(client: Client, case: Case) -> None:
    if not case.has_status:
        return
    made = await client.create(case.make())
    assert get_condition(made, "Ready") is None
    assert not remove_condition(made, "Ready")
    case.report(made)
    assert set_condition(made, "Ready", True, reason="Up", message="m")
    written = (await StatusWriter(client).write(made)).object
    assert has_condition(written, "Ready")
    assert await client.wait_ready(case.cls, "a", timeout=10) == written
    assert await client.wait_for(case.cls, "a", "condition=Ready", timeout=10) == written
    assert remove_condition(written, "Ready")
    assert not has_condition((await StatusWriter(client).write(written)).object, "Ready")


async def finalizers(client: Client, case: Case) -> None:
    made = await client.create(case.make())
    assert not has_finalizer(made, FINALIZER)
    with_it = await add_finalizer(client, made, FINALIZER)
    assert has_finalizer(with_it, FINALIZER)
    await client.delete(with_it)
    without = await remove_finalizer(client, with_it, FINALIZER)
    assert without is not None
    assert not has_finalizer(without, FINALIZER)
    await client.wait_gone(case.cls, "a", timeout=10)


async def owner_references(client: Client, case: Case) -> None:
    owner = await client.create(case.make("owner"))
    other = await client.create(ConfigMap(metadata=ObjectMeta(name="other")))
    owned = case.make("owned", namespace=client.namespace)
    set_controller_reference(owner, owned)
    set_owner_reference(other, owned)
    made = await client.create(owned)
    assert is_controlled_by(made, owner)
    assert controller_of(made) == made.metadata.owner_references[0]
    assert [one.uid for one in made.metadata.owner_references] == [owner.metadata.uid, other.metadata.uid]
    read = await client.get(case.cls, "owner")
    set_owner_reference(other, read)
    assert (await client.patch(read)).metadata.owner_references[0].uid == other.metadata.uid


async def children(client: Client, case: Case) -> None:
    owner = await client.create(case.make("owner"))
    for mode in ("apply", "patch"):
        sets = Children(client, field_manager=MANAGER, kinds=[case.cls], mode=mode, name=mode)
        wanted = case.make(f"{mode}-child")
        [missing] = await find_drift(sets, owner, [case.make(f"{mode}-child")])
        assert missing.drift_kind == "missing"
        assert str(await sets.apply(owner, [wanted], dry_run=True)) == "1 created (dry run)"
        assert str(await sets.apply(owner, [wanted])) == "1 created"
        assert str(await sets.apply(owner, [case.make(f"{mode}-child")])) == "1 unchanged"
        case.change(other := case.make(f"{mode}-child", labels={"a": "b"}))
        for ask in (True, False):
            [drift] = await find_drift(sets, owner, [other], ask=ask)
            assert drift.drift_kind == "changed"
            assert str(drift)
        assert str(await sets.apply(owner, [other])) == "1 updated"
        state = state_of([await client.get(case.cls, f"{mode}-child")])
        assert state.ready, str(state)
        await wait_for_children(sets.reader, [await client.get(case.cls, f"{mode}-child")], timeout=10)
        assert str(await sets.apply(owner, [])) == "1 pruned"


async def adoption(client: Client, case: Case) -> None:
    owner = await client.create(case.make("owner"))
    await client.create(case.make("child"))
    sets = Children(client, field_manager=MANAGER, kinds=[case.cls], adopt=True)
    case.change(child := case.make("child"))
    await sets.apply(owner, [child])
    assert is_controlled_by(await client.get(case.cls, "child"), owner)


async def events(client: Client, case: Case) -> None:
    made = await client.create(case.make())
    async with EventRecorder(client, MANAGER) as recorder:
        recorder.normal(made, "Made", "it was made")
    [event] = await client.list(CoreEvent, namespace=client.namespace, field_selector={"involvedObject.uid": made.metadata.uid})
    assert event.involved_object.kind == case.cls.kind


async def informers(client: Client, case: Case) -> None:
    made = await client.create(case.make())
    paths = ["spec.image", "status.phase"]
    async with InformerFactory(client) as found:
        informer = found.for_kind(case.cls, namespace=client.namespace, indexes={"image": "spec.image"}, paths=paths)
        await found.wait_synced()
        made.metadata.managed_fields = []  # which caches leave out
        assert informer.lister.get("a", client.namespace) == made
        assert informer.lister.list(client.namespace) == [made]
        changed = informer.lister.get("a", client.namespace)
        assert changed is not None
        changed.metadata.labels["a"] = "b"
        case.change(changed)
        await client.update(changed)


async def reconciles(client: Client, case: Case) -> None:
    """A controller of the kind that writes status, finalizer and children, and events of a handler of its changes."""
    seen: asyncio.Queue[str] = asyncio.Queue()

    bases: list[Any] = [Controller, KeyController, HandlerController]
    of_objects: Any = bases[0][case.cls]
    of_keys: Any = bases[1][case.cls]
    with_handlers: Any = bases[2][case.cls]

    class Reconciler(of_objects):  # type: ignore[misc] # as above
        owns = (ConfigMap,)
        name = "reconciler"
        predicates = (path_changed("spec") | path_changed("metadata.labels"),)

        async def reconcile(self, obj: Any) -> None:
            obj = await add_finalizer(self.client, obj, FINALIZER)
            await Children(self).apply(obj, [ConfigMap(metadata=ObjectMeta(name="of-a"))])
            assert self.owned(ConfigMap, obj)
            if case.has_status:
                case.report(obj)
                set_condition(obj, "Ready", True, reason="Up")
                await StatusWriter(self.client).write(obj)
            seen.put_nowait("reconciled")

    class ByKey(of_keys):  # type: ignore[misc]
        name = "by-key"

        async def reconcile(self, key: ObjectKey) -> None:
            assert self.lister(case.cls).get(key.name, key.namespace) is not None
            seen.put_nowait("by key")

    class Handlers(with_handlers):  # type: ignore[misc]
        name = "handlers"

        @on_create
        async def made(self, obj: Any) -> None:
            seen.put_nowait(f"{obj.metadata.name} made")

        @on_change("metadata.labels")
        async def labelled(self, obj: Any, old: Any, new: Any) -> None:
            seen.put_nowait(f"{old or {}} to {new}")

    found: set[str] = set()

    async def wait_until_seen(*expected: str) -> None:
        async with asyncio.timeout(10):
            while not found.issuperset(expected):
                found.add(await seen.get())

    async with Manager(client, [Reconciler(), ByKey(), Handlers()], namespace=client.namespace):
        await client.create(case.make())
        await wait_until_seen("reconciled", "by key", "a made")
        await client.patch(case.cls, "a", {"metadata": {"labels": {"a": "b"}}})
        await wait_until_seen("{} to {'a': 'b'}")
    await remove_finalizer(client, await client.get(case.cls, "a"), FINALIZER)


USES: tuple[Use, ...] = (
    create,
    copies,
    metadata,
    lists,
    watch,
    update,
    update_status,
    patch_with_a_tree,
    patch_with_a_part,
    patch_changes,
    apply,
    apply_a_status,
    upgrade_ownership,
    change,
    create_or_update,
    create_or_patch,
    delete,
    subresource,
    waits,
    status_writer,
    status_writer_on_conflict,
    conditions,
    finalizers,
    owner_references,
    children,
    adoption,
    events,
    informers,
    reconciles,
)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("case", [pytest.param(case, id=case.cls.__name__) for case in CASES])
@pytest.mark.parametrize("use", [pytest.param(use, id=use.__name__.replace("_", " ")) for use in USES])
async def test_it_works_with_a_kind(client: Client, use: Use, case: Case) -> None:
    await use(client, case)
