"""The status writer: nothing is sent that says nothing, and nothing of others is lost. On both servers."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.api.core.v1 import ConfigMap, Container, Pod, PodSpec
from kubeloop.client import Client, OperationResult
from kubeloop.controller.controllerutil.conditions import get_condition, remove_condition, set_condition
from kubeloop.controller.controllerutil.status_writer import BothChanged, StatusError, StatusWriter, WriteBackoff, three_way
from kubeloop.meta import IncompleteObject, NotFound, ObjectMeta, Unstructured


async def pod(client: Client) -> Pod:
    """A pod of a scheduler that does not exist, so that only the test writes its status."""
    spec = PodSpec(scheduler_name="absent", containers=[Container(name="c", image="nginx")])
    return await client.create(Pod(metadata=ObjectMeta(name="p"), spec=spec))


@pytest.mark.server
async def test_a_status_is_written_and_the_same_again_is_not_sent(client: Client) -> None:
    found = await pod(client)
    writer = StatusWriter(client)
    assert (await writer.write(found)).operation is OperationResult.UNCHANGED
    set_condition(found, "example.com/Ready", False, reason="Starting")
    found.spec.containers[0].image = "other"
    written = await writer.write(found)
    assert written.operation is OperationResult.UPDATED_STATUS_ONLY
    assert written.object.spec.containers[0].image == "nginx", "only the status is written"
    now = await client.get(Pod, "p")
    assert now.metadata.resource_version == written.object.metadata.resource_version
    set_condition(now, "example.com/Ready", False, reason="Starting")
    assert (await writer.write(now)).operation is OperationResult.UNCHANGED
    assert (await client.get(Pod, "p")).metadata.resource_version == now.metadata.resource_version


@pytest.mark.server
async def test_conditions_that_others_wrote_since_the_object_was_read_stay(client: Client) -> None:
    mine = await pod(client)
    theirs = await client.get(Pod, "p")
    writer = StatusWriter(client)
    set_condition(theirs, "example.com/Theirs", True, reason="Up")
    theirs.status.message = "theirs"
    await writer.write(theirs)
    set_condition(mine, "example.com/Mine", True, reason="Up")
    mine.status.reason = "Mine"
    written = await writer.write(mine)
    assert written.operation is OperationResult.UPDATED_STATUS_ONLY
    assert (written.object.status.message, written.object.status.reason) == ("theirs", "Mine")
    assert get_condition(written.object, "example.com/Theirs") is not None
    assert get_condition(written.object, "example.com/Mine") is not None
    again = written.object
    remove_condition(again, "example.com/Mine")
    assert get_condition((await writer.write(again)).object, "example.com/Mine") is None


@pytest.mark.server
async def test_an_unstructured_status_is_written_alike(client: Client) -> None:
    await pod(client)
    found = await client.get(Unstructured.for_kind("v1", "Pod"), "p")
    set_condition(found, "example.com/Ready", True, reason="Up")
    written = await StatusWriter(client, field_manager="status-test").write(found)
    assert get_condition(written.object, "example.com/Ready") is not None
    assert (await StatusWriter(client).write(written.object)).operation is OperationResult.UNCHANGED


@pytest.mark.server
async def test_a_successor_gone_objects_and_kinds_without_a_status_are_named(client: Client) -> None:
    first = await pod(client)
    await client.delete(first, grace_period_seconds=0)
    first.status.message = "late"
    with pytest.raises(NotFound):
        await StatusWriter(client).write(first)
    await pod(client)
    with pytest.raises(NotFound, match="another object has its name"):
        await StatusWriter(client).write(first)
    config = await client.create(Unstructured.from_dict({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}))
    config["status"] = {"phase": "Up"}
    with pytest.raises(StatusError, match=r"no status subresource.*subresources"):
        await StatusWriter(client).write(config)
    with pytest.raises(IncompleteObject, match="made here"):
        await StatusWriter(client).write(ConfigMap(metadata=ObjectMeta(name="c")))


@pytest.mark.server
async def test_an_object_whose_status_flaps_is_held_back(client: Client) -> None:
    found = await pod(client)
    writer = StatusWriter(client, backoff=WriteBackoff(burst=1, initial=3600, cap=3600))
    written_twice = [OperationResult.UPDATED_STATUS_ONLY] * 2
    for message, operation in zip("abc", [*written_twice, OperationResult.UNCHANGED], strict=True):
        found.status.message = message
        written = await writer.write(found)
        assert written.operation is operation
        assert (written.requeue_after is None) is (operation is not OperationResult.UNCHANGED)
        found = written.object
    assert written.result is not None
    assert written.result.requeue_after is not None
    assert written.result.requeue_after > 3000
    found.status.message = "b"
    assert (await writer.write(found)).operation is OperationResult.UNCHANGED, "a status that equals the written one again needs no write"
    found.status.message = "d"
    assert (await writer.write(found, urgent=True)).operation is OperationResult.UPDATED_STATUS_ONLY


def test_pauses_grow_from_the_first_write_that_is_not_free_and_are_forgotten_in_a_calm() -> None:
    backoff = WriteBackoff(burst=2, initial=1, cap=4, calm=10)
    now, pauses = 0.0, []
    for _ in range(6):
        backoff.wrote("u", now)
        pauses.append(backoff.wait("u", now))
        now += pauses[-1]
    assert pauses == [0, 0, 1, 2, 4, 4]
    assert backoff.wait("other", now) == 0
    backoff.wrote("u", now + 10)
    assert backoff.wait("u", now + 10) == 0
    backoff.forget("u")
    assert len(backoff) == 0


def test_objects_that_are_calm_take_no_memory() -> None:
    backoff = WriteBackoff(calm=1)
    for number in range(5000):
        backoff.wrote(str(number), float(number))
    assert len(backoff) < 1100


@pytest.mark.parametrize("back_off", [{"burst": -1}, {"initial": 0}, {"cap": 0.5}, {"calm": -1}])
def test_a_back_off_that_makes_no_sense_is_refused(back_off: Any) -> None:
    with pytest.raises(ValueError, match="write back-off wants"):
        WriteBackoff(**back_off)


@pytest.mark.parametrize(
    ("base", "mine", "theirs", "expected"),
    [
        pytest.param({"a": 1}, {"a": 2}, {"a": 1, "b": 1}, {"a": 2, "b": 1}, id="what only one side changed is kept"),
        pytest.param({"a": 1}, {}, {"a": 1, "b": 1}, {"b": 1}, id="what one side took out is out"),
        pytest.param({"a": 1}, {"a": 2}, {"a": 3}, {"a": 2}, id="of a scalar that both changed mine counts"),
        pytest.param({}, {"l": [1]}, {"l": [1]}, {"l": [1]}, id="the same change on both sides is one"),
        pytest.param(
            {"conditions": [{"type": "A"}, {"type": "B"}]},
            {"conditions": [{"type": "A", "x": 1}]},
            {"conditions": [{"type": "B"}, {"type": "A"}, {"type": "C"}]},
            {"conditions": [{"type": "A", "x": 1}, {"type": "C"}]},
            id="conditions are merged by type, in the order of the newest state",
        ),
    ],
)
def test_merging(base: Any, mine: Any, theirs: Any, expected: Any) -> None:
    assert three_way(base, mine, theirs) == expected


def test_a_list_without_keys_that_both_changed_is_named() -> None:
    with pytest.raises(BothChanged, match=r"status\.hosts"):
        three_way({"hosts": []}, {"hosts": ["a"]}, {"hosts": ["b"]}, "status")


_TREES = st.recursive(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 2) | st.sampled_from(["x", "y"]), max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | st.integers(0, 2), max_size=3),
    max_leaves=6,
)


@settings(max_examples=60)
@given(_TREES, _TREES, _TREES)
def test_a_side_that_changed_nothing_yields_and_what_both_left_alone_stays(base: Any, mine: Any, theirs: Any) -> None:
    assert three_way(base, mine, base) == mine
    assert three_way(base, base, theirs) == theirs
    merged = three_way(base, mine, theirs)
    for name in base.keys() | mine.keys() | theirs.keys():
        if mine.get(name) == base.get(name) == theirs.get(name):
            assert merged.get(name) == base.get(name)
        if not isinstance(mine.get(name), dict) and mine.get(name) != base.get(name):
            assert merged.get(name) == mine.get(name)
