"""The controller on the embedded server: its writes, and the lists of added nodes."""

from __future__ import annotations

from typing import Any

import pytest

from examples.bitcoin_operator.controller import DELETION_WAIT, BitcoinNetworkController
from examples.bitcoin_operator.mesh import Mesh
from examples.bitcoin_operator.resources import IMAGE, READINESS, SECRET_VERSION
from examples.bitcoin_operator.tests.scripted_daemons import CREDENTIALS, ScriptedDaemons
from examples.bitcoin_operator.tests.stage import NAME, STS, SVC, Stage, ip_of, network, warnings_of
from examples.bitcoin_operator.types import BitcoinNetwork
from kubeloop.api.apps.v1 import StatefulSet
from kubeloop.api.core.v1 import Service
from kubeloop.controller import Children, ChildrenReport
from kubeloop.meta import ObjectKey
from kubeloop.testing import RecordedCall, eventually, on, one
from kubeloop.testing.fake_time import run_until_idle

pytestmark = pytest.mark.embedded


async def test_a_network_gets_a_headless_service_and_a_stateful_set(at: Stage) -> None:
    await at.start()
    made = await at.client.create(network(4, secret="rpc"))
    stateful_set = await at.stateful_set()
    service = await at.client.get(Service, SVC)

    assert (service.spec.cluster_ip, service.spec.selector, service.spec.ports or []) == ("None", {"app": NAME}, [])
    spec = stateful_set.spec
    assert (spec.replicas, spec.service_name, spec.selector.match_labels, spec.pod_management_policy) == (4, SVC, {"app": NAME}, "Parallel")
    assert spec.template.metadata.labels == {"app": NAME}
    (container,) = spec.template.spec.containers
    assert (container.name, container.image, container.image_pull_policy) == (f"{STS}-ctr", IMAGE, "IfNotPresent")
    assert [(each.secret_ref.name, each.secret_ref.optional) for each in container.env_from or [] if each.secret_ref] == [("rpc", True)]
    assert [
        (each.name, each.value_from.field_ref.field_path) for each in container.env or [] if each.value_from and each.value_from.field_ref
    ] == [("POD_IP", "status.podIP")]
    probe = container.readiness_probe
    assert probe is not None
    assert probe.exec is not None
    assert (probe.exec.command, probe.initial_delay_seconds, probe.period_seconds) == (READINESS, 5, 5)
    for child in (service, stateful_set):
        (owner,) = child.metadata.owner_references
        assert (owner.api_version, owner.kind, owner.name, owner.uid) == (
            "bitcoincontroller.christianb93.github.com/v1",
            "BitcoinNetwork",
            NAME,
            made.metadata.uid,
        )
        assert owner.controller is True
        assert owner.block_owner_deletion is True


async def test_a_network_without_a_secret_has_no_env_from_and_no_annotation(at: Stage) -> None:
    await at.start()
    await at.client.create(network(1))
    template = (await at.stateful_set()).spec.template
    assert template.spec.containers[0].env_from in (None, [])
    assert SECRET_VERSION not in (template.metadata.annotations or {})


async def test_a_new_network_has_exactly_two_events_of_reason_info(at: Stage) -> None:
    await at.start()
    await at.created(2)
    assert await at.events() == [
        ("Normal", "Info", f"Created headless service for bitcoin network {NAME}"),
        ("Normal", "Info", f"Created stateful set for bitcoin network {NAME}"),
    ]


async def test_the_writes_for_a_new_network(at: Stage) -> None:
    await at.start()
    await at.client.create(network(2))
    await at.status(lambda obj: obj.status.replicas == 0)
    await at.quiet()
    at.actions.expect(f"""
        patch  Service                 default/{SVC}
        patch  StatefulSet             default/{STS}  spec.replicas=2
        patch  BitcoinNetwork/status   default/{NAME}
    """)


@pytest.mark.parametrize("seconds", [60.0, 3600.0])
async def test_a_steady_network_causes_neither_a_write_nor_a_request_to_a_daemon(at: Stage, seconds: float) -> None:
    await at.start()
    await at.created(3)
    await at.meshed(3)
    at.actions.clear()
    at.daemons.requests.clear()
    await at.quiet(seconds)
    at.actions.expect("")
    assert at.daemons.requests == []


async def test_a_restarted_controller_asks_each_daemon_once_and_writes_nothing(at: Stage) -> None:
    await at.start()
    await at.created(3)
    await at.meshed(3)
    await at.cluster.stop_managers()
    at.actions.clear()
    at.daemons.requests.clear()
    await at.start()
    await at.quiet(60)
    at.actions.expect("")
    assert sorted(at.daemons.asked()) == ["getaddednodeinfo"] * 3


@pytest.mark.parametrize(
    ("before", "after"),
    [pytest.param(2, 4, id="up"), pytest.param(4, 2, id="down"), pytest.param(2, 0, id="to zero"), pytest.param(0, 2, id="from zero")],
)
async def test_a_network_is_scaled(at: Stage, before: int, after: int) -> None:
    await at.start()
    await at.created(before)
    await at.meshed(before)
    await at.client.patch(BitcoinNetwork, NAME, {"spec": {"nodes": after}})
    await eventually(one(at.client, StatefulSet, STS), {"spec": {"replicas": after}})
    await at.pods(after, first=before)
    found = await at.meshed(after)
    at.expect_full(range(after))
    assert [node.ordinal for node in found.status.nodes] == list(range(after))
    assert ("Normal", "Info", f"Adjusting number of replicas to {after}") in await at.events()


async def test_daemons_that_are_scaled_away_leave_the_lists_before_their_pods_end(at: Stage) -> None:
    await at.start()
    await at.created(3)
    await at.meshed(3)
    await at.client.patch(BitcoinNetwork, NAME, {"spec": {"nodes": 2}})
    await at.meshed(2)
    at.expect_full([0, 1])
    assert await at.client.get(StatefulSet, STS) is not None


@pytest.mark.parametrize(
    ("change", "replicas"),
    [
        pytest.param({"spec": {"replicas": 100}}, 3, id="100 replicas"),
        pytest.param({"spec": {"replicas": 0}}, 3, id="no replicas"),
    ],
)
async def test_a_scaled_stateful_set_is_set_back(at: Stage, change: dict[str, object], replicas: int) -> None:
    await at.start()
    await at.created(3)
    await at.client.patch(StatefulSet, STS, change)
    await eventually(one(at.client, StatefulSet, STS), {"spec": {"replicas": replicas}})
    assert ("Normal", "Info", f"Adjusting number of replicas to {replicas}") in await at.events()


async def test_a_changed_image_is_set_back_without_an_event_about_replicas(at: Stage) -> None:
    await at.start()
    await at.created(1)
    changed = await at.client.get(StatefulSet, STS)
    changed.spec.template.spec.containers[0].image = "other:1"
    await at.client.update(changed)
    await eventually(one(at.client, StatefulSet, STS), lambda obj: obj.spec.template.spec.containers[0].image == IMAGE)
    assert len(await at.events()) == 2


@pytest.mark.parametrize(("kind", "name"), [pytest.param(StatefulSet, STS, id="stateful set"), pytest.param(Service, SVC, id="service")])
async def test_a_deleted_child_comes_back(at: Stage, kind: type[Service | StatefulSet], name: str) -> None:
    await at.start()
    await at.created(1)
    old = await at.client.get(kind, name)
    await at.client.delete(old)
    await eventually(one(at.client, kind, name), lambda obj: obj.metadata.uid != old.metadata.uid)


async def test_two_networks_do_not_know_each_other(at: Stage) -> None:
    await at.start()
    await at.created(2)
    await at.client.create(network(1, name="other"))
    await at.stateful_set("other")
    await at.meshed(2)
    at.expect_full([0, 1])


# ----------------------------------------------------------------------------------------------------------- changes of pods


async def test_a_pod_that_becomes_ready_is_added_to_all_lists(at: Stage) -> None:
    await at.start()
    await at.created(3, ready=2)
    assert at.daemons.lists() == {ip_of(0): {ip_of(1)}, ip_of(1): {ip_of(0)}}
    await at.pod(2)
    await at.meshed(3)
    at.expect_full([0, 1, 2])


async def test_a_pod_that_is_no_longer_ready_is_removed_from_all_lists(at: Stage) -> None:
    await at.start()
    await at.created(3)
    await at.meshed(3)
    await at.pod(2, ready=False)
    await at.status(lambda obj: obj.status.ready_nodes == 2)
    await at.quiet()
    at.expect_full([0, 1])


async def test_a_pod_with_another_address_replaces_the_old_one(at: Stage) -> None:
    await at.start()
    await at.created(3)
    await at.meshed(3)
    await at.pod(2, ip="10.0.9.9", run="2")
    await at.quiet()
    ips = [ip_of(0), ip_of(1), "10.0.9.9"]
    assert at.daemons.lists(ips) == {ip: set(ips) - {ip} for ip in ips}


async def test_a_daemon_that_restarted_with_the_same_address_gets_its_list_again(at: Stage) -> None:
    """The status does not change: readiness came back between two reconciles."""
    await at.start()
    await at.created(3)
    await at.meshed(3)
    at.actions.clear()
    at.daemons.requests.clear()
    at.daemons[ip_of(1)].restart()
    await at.pod(1, run="2")
    await at.quiet()
    at.expect_full([0, 1, 2])
    assert {request.ip for request in at.daemons.requests} == {ip_of(1)}


async def test_a_terminating_pod_leaves_the_mesh_at_once(at: Stage) -> None:
    await at.start()
    await at.created(3)
    pod = await at.pod(2)
    pod.metadata.finalizers = ["example.com/hold"]
    pod = await at.client.update(pod)
    await at.client.delete(pod)
    await at.status(lambda obj: obj.status.ready_nodes == 2)
    await at.quiet()
    at.expect_full([0, 1])
    pod = await at.client.get(type(pod), pod.metadata.name)
    pod.metadata.finalizers = []
    await at.client.update(pod)


async def test_a_pod_of_another_owner_with_a_matching_name_is_ignored(at: Stage) -> None:
    await at.start()
    await at.client.create(network(2))
    await at.pod(0)
    await at.pod(1, foreign=True)
    found = await at.status(lambda obj: obj.status.ready_nodes == 1)
    await at.quiet()
    assert [node.ordinal for node in found.status.nodes] == [0]
    assert at.daemons.lists() == {ip_of(0): set()}


async def test_a_deleted_network_is_forgotten(at: Stage) -> None:
    await at.start()
    made = await at.created(2)
    at.actions.clear()
    at.daemons.requests.clear()
    await at.client.delete(made)
    await at.quiet(60)
    at.actions.expect("")
    await at.pod(0, run="2")
    await at.quiet(60)
    at.actions.expect("")
    assert at.daemons.requests == []


async def test_a_network_that_waits_for_a_finalizer_is_left_alone(at: Stage) -> None:
    await at.start()
    await at.created(2)
    made = await at.client.patch(BitcoinNetwork, NAME, {"metadata": {"finalizers": ["example.com/hold"]}})
    await at.client.delete(made)
    await at.quiet()
    at.actions.clear()
    await at.client.delete(StatefulSet, STS)
    await at.quiet(60)
    at.actions.expect("")


async def test_a_network_that_is_deleted_before_its_status_is_written_is_no_error(at: Stage, caplog: pytest.LogCaptureFixture) -> None:
    async def delete(_: RecordedCall) -> None:
        stop()
        await at.client.delete(BitcoinNetwork, NAME)

    stop = at.cluster.faults.react(delete, matching=on("patch", "bitcoinnetworks/status"))
    await at.start()
    await at.client.create(network(1))
    await eventually(one(at.client, BitcoinNetwork, NAME), None)
    await at.quiet(60)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_change_that_arrives_while_the_children_are_applied_is_set_back(at: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Children.apply
    changes = [7, 8]

    async def apply_slowly(children: Children, *arguments: Any, **options: Any) -> ChildrenReport:
        report = await apply(children, *arguments, **options)
        if changes:
            await at.client.patch(StatefulSet, STS, {"spec": {"replicas": changes.pop()}})
            await run_until_idle(lambda: False)  # the cache shows the change
        return report

    monkeypatch.setattr(Children, "apply", apply_slowly)
    await at.start()
    await at.client.create(network(2))
    await eventually(one(at.client, StatefulSet, STS), lambda obj: not changes and obj.spec.replicas == 2, within=60)
    await at.quiet()


# ---------------------------------------------------------------------------------------------------- a network that is created again


async def recreated(at: Stage) -> None:
    """Delete the network and create it again, before a garbage collector has deleted its children."""
    await at.client.delete(await at.created(1))
    await at.client.create(network(2))
    await at.quiet(5)


async def test_a_network_that_is_created_again_waits_quietly_for_the_deletion_of_the_older_children(at: Stage) -> None:
    await at.start()
    await recreated(at)
    conditions = await at.conditions()
    assert conditions["Degraded"][:2] == ("False", "WaitingForDeletion")
    assert SVC in conditions["Degraded"][2]
    for kind, name in ((Service, SVC), (StatefulSet, STS)):
        await at.client.delete(kind, name)
    await eventually(one(at.client, StatefulSet, STS), {"spec": {"replicas": 2}}, within=2)
    await eventually(one(at.client, Service, SVC), lambda _: True, within=2)
    await at.quiet()
    assert (await at.conditions())["Degraded"] == ("False", "AsExpected", "")
    assert await warnings_of(at) == []


async def test_older_children_that_are_being_deleted_are_no_error(at: Stage) -> None:
    await at.start()
    await at.client.delete(await at.created(1))
    held = await at.client.patch(Service, SVC, {"metadata": {"finalizers": ["example.com/hold"], "ownerReferences": None}})
    await at.client.delete(held)
    await at.client.delete(StatefulSet, STS)
    await at.client.create(network(2))
    await at.quiet(5)
    assert (await at.conditions())["Degraded"][:2] == ("False", "WaitingForDeletion")
    assert await warnings_of(at) == []


async def test_older_children_that_stay_are_an_error_after_half_a_minute(at: Stage) -> None:
    await at.start()
    await recreated(at)
    await at.quiet(DELETION_WAIT)
    assert (await at.conditions())["Degraded"][:2] == ("True", "ChildFailed")
    assert {reason for reason, _ in await warnings_of(at)} == {"CreationError"}
    await at.quiet(2 * DELETION_WAIT)
    assert (await at.conditions())["Degraded"][:2] == ("True", "ChildFailed")


# ---------------------------------------------------------------------------------------------------------------------- the end


async def test_a_mesh_that_fails_to_close_leaves_nothing_open(daemons: ScriptedDaemons, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    rpc = daemons.client()
    await rpc.__aenter__()
    controller = BitcoinNetworkController(rpc)
    for name in ("a", "b", "c"):
        mesh = controller._meshes[ObjectKey("", "default", name)] = Mesh(rpc, lambda: 0.0, lambda: None)

        async def close(name: str = name) -> None:
            closed.append(name)
            if name != "c":
                raise RuntimeError(name)

        monkeypatch.setattr(mesh, "close", close)
    with pytest.raises(ExceptionGroup) as caught:
        await controller.stop()
    assert ([str(error) for error in caught.value.exceptions], closed) == (["a", "b"], ["a", "b", "c"])
    with pytest.raises(RuntimeError, match="closed"):
        await rpc.added_nodes("10.0.0.1", CREDENTIALS)
