"""The plan of the EndpointSlices of a Service: which slices are created, changed and deleted."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.core.v1 import Container, ContainerPort, ServicePort
from kubeloop.api.discovery.v1 import EndpointHints, EndpointSlice
from kubeloop.controlplane.services.backends import (
    ChangeBatcher,
    EndpointsPort,
    TriggerTimes,
    canonical_address,
    find_port,
    go_hash,
    ports_of,
    sort_slice_ports,
)
from kubeloop.controlplane.services.slices import (
    EndpointBuilder,
    SlicePlan,
    address_types,
    endpoint_of,
    group_by_ports,
    new_slice,
    plan_slices,
)
from kubeloop.meta import ObjectKey
from tests.controlplane.backends import backend, service
from tests.controlplane.workloads import pod

LIMIT = 10
WEB = (EndpointsPort("", 8080, "TCP"),)
METRICS = (EndpointsPort("", 9090, "TCP"),)


def stored(name: str, *numbers: int, ports: tuple[EndpointsPort, ...] = WEB, **fields: Any) -> EndpointSlice:
    """A slice as the cache has it, with the ready backends of these numbers."""
    one = new_slice(service(), "IPv4", ports)
    one.metadata.name, one.metadata.uid = name, f"uid-{name}"
    one.endpoints = [found for number in numbers if (found := endpoint_of(backend(number), service(), "IPv4", "")) is not None]
    for key, value in fields.items():
        setattr(one.metadata, key, value)
    return one


def plan(existing: list[EndpointSlice], *numbers: int, ports: tuple[EndpointsPort, ...] = WEB, unready: int = -1) -> SlicePlan:
    """Plan for the ready backends of these numbers, of which ``unready`` is not ready."""
    found = [endpoint_of(backend(number, ready=number != unready), service(), "IPv4", "") for number in numbers]
    made = plan_slices(service(), "IPv4", group_by_ports((ports, one) for one in found), existing, LIMIT)
    made.recycle("service-uid")
    return made


def sizes(some: list[EndpointSlice]) -> dict[str, int]:
    return {one.metadata.name: len(one.endpoints) for one in some}


SEVEN, FULL = range(7), range(100, 110)


@pytest.mark.parametrize(
    ("existing", "numbers", "created", "updated", "deleted"),
    [
        pytest.param([], (), [0], {}, [], id="a Service without pods gets an empty slice"),
        pytest.param([], range(25), [10, 10, 5], {}, [], id="new endpoints fill slices"),
        pytest.param([stored("a", *SEVEN)], SEVEN, [], {}, [], id="equal endpoints change nothing"),
        pytest.param([stored("a", *SEVEN)], range(6), [], {"a": 6}, [], id="an endpoint that is gone changes its slice"),
        pytest.param([stored("a", 1), stored("b", *FULL)], FULL, [], {}, ["a"], id="a slice without endpoints is deleted"),
        pytest.param([stored("a", 1)], (), [], {"a": 0}, [], id="the last slice becomes the empty one"),
        pytest.param(
            [stored("a", *SEVEN), stored("b", *FULL)], [*SEVEN, *FULL, 50, 51], [], {"a": 9}, [],
            id="an unchanged slice with room takes new endpoints, and a full one stays",
        ),
        pytest.param(
            [stored("a", *range(4)), stored("b", *range(10, 16))], [*range(4), *range(10, 16), 50, 51, 52], [], {"b": 9}, [],
            id="of several slices with room the fullest takes them",
        ),
        pytest.param(
            [stored("a", *range(5)), stored("b", *range(10, 16))], [*range(5), *range(10, 16), *range(50, 56)], [6], {}, [],
            id="no slice with room for all of them is changed: a new slice is cheaper than two changes",
        ),
        pytest.param(
            [stored("a", *SEVEN), stored("b", *range(10, 19))], [*range(6), *range(10, 19), 50, 51], [], {"a": 8}, [],
            id="a slice that changes anyway is filled first",
        ),
        pytest.param(
            [stored("a", *SEVEN), stored("b", *range(10, 19))], [*range(5), *range(10, 17), 50, 51, 52, 53, 54], [], {"a": 7, "b": 10}, [],
            id="of slices that change anyway the fullest is filled first",
        ),
        pytest.param(
            [stored("a", 1, 2), stored("b", 3, 4)], range(50, 54), [], {"a": 4}, ["b"],
            id="a new slice takes the name of a slice that is deleted",
        ),
        pytest.param([stored("a", ports=())], (), [], {}, [], id="the empty slice stays"),
    ],
)  # fmt: skip
def test_plan(existing: list[EndpointSlice], numbers: Any, created: list[int], updated: dict[str, int], deleted: list[str]) -> None:
    made = plan(existing, *numbers)
    assert [len(one.endpoints) for one in made.create] == created
    assert sizes(made.update) == updated
    assert sorted(sizes(made.delete)) == deleted


def test_a_pod_that_becomes_unready_changes_its_endpoint_in_place() -> None:
    made = plan([stored("a", *FULL), stored("b", *SEVEN)], *FULL, *SEVEN, unready=3)
    assert sizes(made.update) == {"b": 7}
    assert [one.conditions.ready for one in made.update[0].endpoints] == [True, True, True, False, True, True, True]
    assert sizes(made.unchanged) == {"a": 10}


def test_one_change_among_5000_pods_changes_one_slice() -> None:
    existing = [stored(f"s{at:02}", *range(at * 100, at * 100 + 100)) for at in range(50)]
    found = [endpoint_of(backend(number, ready=number != 4321), service(), "IPv4", "") for number in range(5000)]
    made = plan_slices(service(), "IPv4", group_by_ports((WEB, one) for one in found), existing, 100)
    assert (sizes(made.update), made.create, made.delete) == ({"s43": 100}, [], [])


def test_pods_with_other_ports_get_other_slices() -> None:
    found = [(WEB, 1), (METRICS, 2), (WEB, 3)]
    endpoints = [(ports, endpoint_of(backend(number), service(), "IPv4", "")) for ports, number in found]
    made = plan_slices(service(), "IPv4", group_by_ports(endpoints), [stored("a", 1, 3)], LIMIT)
    assert sizes(made.unchanged) == {"a": 2}
    assert [([port.port for port in one.ports], len(one.endpoints)) for one in made.create] == [([9090], 1)]


def test_slices_of_an_earlier_service_of_the_name_are_deleted_and_not_recycled() -> None:
    old = stored("a", 1)
    old.metadata.owner_references[0].uid = "earlier"
    made = plan([old], 1)
    assert (sizes(made.update), [len(one.endpoints) for one in made.create], sizes(made.delete)) == ({}, [1], {"a": 1})


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"team": "shop"}, {"team": "shop"}, id="labels of the Service are copied"),
        pytest.param({"kubernetes.io/service-name": "other", "service.kubernetes.io/headless": ""}, {}, id="reserved labels are not"),
    ],
)
def test_labels_of_a_service(labels: dict[str, str], expected: dict[str, str]) -> None:
    own = {"kubernetes.io/service-name": "s", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
    assert new_slice(service(labels=labels), "IPv4", ()).metadata.labels == expected | own
    changed = plan_slices(service(labels=labels), "IPv4", {}, [stored("a", 1)], LIMIT)
    assert sizes(changed.delete) == {"a": 1}
    found = endpoint_of(backend(1), service(), "IPv4", "")
    relabelled = plan_slices(service(labels=labels), "IPv4", group_by_ports([(WEB, found)]), [stored("a", 1)], LIMIT)
    assert sizes(relabelled.update) == ({"a": 1} if expected else {})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"ip_families": ["IPv6", "IPv4"]}, ["IPv4", "IPv6"], id="the families of the Service"),
        pytest.param({"ip_families": [], "cluster_ip": "fd00::1"}, ["IPv6"], id="without families, that of the cluster IP"),
        pytest.param({"ip_families": [], "cluster_ip": "None"}, ["IPv4", "IPv6"], id="a headless Service without families has both"),
    ],
)
def test_address_types(spec: dict[str, Any], expected: list[str]) -> None:
    assert address_types(service(**spec)) == expected


@pytest.mark.parametrize(
    ("pod_state", "publish", "expected"),
    [
        pytest.param({}, False, (True, True, False), id="a ready pod"),
        pytest.param({"ready": False}, False, (False, False, False), id="a pod that is not ready"),
        pytest.param({"terminating": True}, False, (False, True, True), id="a terminating pod still serves, and is not ready"),
        pytest.param({"ready": False}, True, (True, False, False), id="a Service may publish pods that are not ready"),
        pytest.param({"terminating": True, "ready": False}, True, (True, False, True), id="also terminating ones"),
    ],
)
def test_conditions(pod_state: dict[str, Any], publish: bool, expected: tuple[bool, bool, bool]) -> None:
    found = endpoint_of(backend(1, **pod_state), service(publish_not_ready_addresses=publish), "IPv4", "z")
    assert found is not None
    assert (found.conditions.ready, found.conditions.serving, found.conditions.terminating) == expected
    assert (found.zone, found.node_name) == ("z", "n")


@pytest.mark.parametrize(
    ("family", "expected"),
    [("IPv4", ["10.1.2.3"]), ("IPv6", ["fd00::1"])],
)
def test_a_pod_with_two_addresses_is_in_slices_of_both_families(family: Any, expected: list[str]) -> None:
    found = endpoint_of(backend(1, addresses=("010.1.2.3", "FD00:0::1")), service(), family, "")
    assert found is not None
    assert found.addresses == expected


@pytest.mark.parametrize(
    ("subdomain", "expected"),
    [pytest.param("s", "web-0", id="the Service's subdomain"), pytest.param("other", None, id="another subdomain")],
)
def test_a_hostname_is_published_below_its_subdomain(subdomain: str, expected: str | None) -> None:
    found = endpoint_of(backend(1, hostname="web-0", subdomain=subdomain), service(), "IPv4", "")
    assert found is not None
    assert found.hostname == expected


@pytest.mark.parametrize(
    ("target", "protocol", "expected"),
    [
        pytest.param(8080, "TCP", 8080, id="a number needs no container"),
        pytest.param("web", "TCP", 80, id="the name of a container's port"),
        pytest.param("web", "UDP", None, id="a port of another protocol is another port"),
        pytest.param("log", "TCP", 99, id="the port of a sidecar"),
        pytest.param("init", "TCP", None, id="init containers that end serve nothing"),
    ],
)
def test_find_port(target: int | str, protocol: Any, expected: int | None) -> None:
    one = pod("p")
    one.spec.containers[0].ports = [ContainerPort(name="web", container_port=80, protocol="TCP")]
    sidecar = Container(name="s", restart_policy="Always", ports=[ContainerPort(name="log", container_port=99)])
    one.spec.init_containers = [Container(name="i", ports=[ContainerPort(name="init", container_port=1)]), sidecar]
    assert find_port(one, ServicePort(port=1, target_port=target, protocol=protocol)) == expected


def test_ports_are_in_the_order_of_upstreams_hashes() -> None:
    """The order is that of k8s.io/endpointslice/util.NewPortMapKey for the same ports."""
    ports = [
        EndpointsPort("http", 80, "TCP"),
        EndpointsPort("https", 443, "TCP", "kubernetes.io/h2c"),
        EndpointsPort("dns", 53, "UDP"),
        EndpointsPort("", 9, "SCTP"),
        EndpointsPort("metrics", 9100, "TCP"),
        EndpointsPort("grpc", 9101, "TCP"),
    ]
    assert [port.name for port in sort_slice_ports(ports)] == ["dns", "https", "metrics", "grpc", "http", ""]
    assert f"{go_hash('a'):032x}" == "d228cb696f1a8caf78912b704e4a8964"


def test_a_port_that_a_pod_lacks_is_left_out() -> None:
    ports = [ServicePort(name="a", port=80, target_port="x"), ServicePort(name="b", port=90, target_port=9000)]
    assert ports_of(service("s", *ports), (None, 9000)) == (EndpointsPort("b", 9000, "TCP"),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1", (4, "10.0.0.1")),
        ("010.000.0.01", (4, "10.0.0.1")),
        ("::ffff:10.0.0.1", (4, "10.0.0.1")),
        ("FD00:0:0::1", (6, "fd00::1")),
        ("10.0.0.256", None),
        ("host", None),
    ],
)
def test_canonical_address(text: str, expected: tuple[int, str] | None) -> None:
    assert canonical_address(text) == expected


@pytest.mark.parametrize(
    ("period", "pods", "after", "expected"),
    [
        pytest.param(0.0, 4, 1.0, 0.0, id="a change after the pause has no delay"),
        pytest.param(0.0, 4, 0.0, 0.002, id="the pause of a small Service is short"),
        pytest.param(0.0, 1000, 0.1, 0.4, id="that of a large one is longer"),
        pytest.param(0.0, 9000, 0.0, 1.0, id="but never longer than a second"),
        pytest.param(2.0, 4, 1.0, 2.0, id="a batch period delays every change"),
    ],
)
def test_changes_of_pods_are_batched(period: float, pods: int, after: float, expected: float) -> None:
    batcher, key = ChangeBatcher(period), ObjectKey("", "default", "s")
    assert batcher.delay(key, 100.0) == period
    batcher.reconciled(key, pods, 100.0)
    assert batcher.delay(key, 100.0 + after) == pytest.approx(expected)
    batcher.forget(key)
    assert batcher.delay(key, 100.0) == period


def test_trigger_times() -> None:
    times, key, created = TriggerTimes(), ObjectKey("", "default", "s"), "2026-01-01T00:00:00Z"
    first, later = "2026-01-01T00:00:05Z", "2026-01-01T00:00:09Z"
    assert times.earliest_change(key, created, [backend(1, changed_at=first)]) == created, "of a new Service its creation"
    assert times.earliest_change(key, created, [backend(1, changed_at=first)]) == "", "nothing changed"
    both = [backend(1, changed_at=later), backend(2, changed_at=first)]
    assert times.earliest_change(key, created, both) == first, "the earliest of two changes"
    times.forget(key)
    assert times.earliest_change(key, created, both) == created


def test_endpoints_of_unchanged_pods_are_built_once_and_come_without_hints() -> None:
    builder, one, other = EndpointBuilder(), backend(1), backend(2)
    first, second = builder.build(service(), "IPv4", [(one, "z"), (other, "z")])
    assert first is not None
    first.hints = EndpointHints()
    again, changed = builder.build(service(), "IPv4", [(one, "z"), (backend(2, ready=False), "z")])
    assert again is first
    assert again is not None
    assert again.hints is None
    assert second is not changed
    assert builder.build(service(), "IPv4", [(one, "y")])[0] is not first, "the zone of its node has changed"
    published = builder.build(service(publish_not_ready_addresses=True), "IPv4", [(one, "y")])
    assert published[0] is not builder.build(service(), "IPv4", [(one, "y")])[0], "the Service has changed"
