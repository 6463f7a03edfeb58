"""Matches of claims, volumes and nodes: which volume suits which claim, and why one does not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.api.core.v1 import PersistentVolumeClaim
from kubeloop.controlplane.scheduling.facts import NodeFacts, VolumeFacts, claim_facts, volume_facts
from kubeloop.controlplane.scheduling.volume_matching import BOUND_BY_CONTROLLER, find_mismatch, find_volume, find_volume_on, reserve_volume
from tests.controlplane.storage import HOSTNAME, claim, volume

DATA = claim_facts(claim())
NODE = NodeFacts("n", {HOSTNAME: "n"}, [], unschedulable=False, allocatable={})
RESERVED = {"namespace": "", "name": "data"}


def available(name: str, size: str = "1Gi", *, node: str = "", deleting: bool = False, **spec: Any) -> VolumeFacts:
    made = volume(name, size, node=node, **spec)
    made.status.phase = "Available"
    if deleting:
        made.metadata.deletion_timestamp = datetime(2026, 1, 1, tzinfo=UTC)
    return volume_facts(made)


@pytest.mark.parametrize(
    ("offered", "pending_claim", "expected"),
    [
        pytest.param(available("v"), claim(), "", id="it fits"),
        pytest.param(available("v", deleting=True), claim(), 'the volume is marked for deletion "v"', id="it is being deleted"),
        pytest.param(available("v"), claim(size="2Gi"), "requested PV is too small", id="it is too small"),
        pytest.param(available("v", storageClassName="fast"), claim(), "storageClassName does not match", id="it has another class"),
        pytest.param(
            available("v", volumeAttributesClassName="gold"),
            claim(),
            "volumeAttributesClassName does not match",
            id="its attributes differ",
        ),
        pytest.param(available("v", volumeMode="Block"), claim(), "incompatible volumeMode", id="it has another mode"),
        pytest.param(available("v", accessModes=["ReadOnlyMany"]), claim(), "incompatible accessMode", id="it lacks an access mode"),
    ],
)
def test_why_a_claim_cannot_have_the_volume_that_it_names(
    offered: VolumeFacts, pending_claim: PersistentVolumeClaim, expected: str
) -> None:
    assert find_mismatch(offered, claim_facts(pending_claim)) == expected


@pytest.mark.parametrize(
    ("offered", "taken", "expected"),
    [
        pytest.param([available("a"), available("b")], (), "a", id="of two that are alike the first by name"),
        pytest.param([available("a"), available("b")], ("a",), "b", id="not a volume that another claim of the pod gets"),
        pytest.param([available("a", node="m"), available("b", "9Gi")], (), "b", id="not one of another node"),
        pytest.param([available("a", node="n"), available("b", "9Gi")], (), "a", id="one of this node"),
        pytest.param([available("a"), available("b", "9Gi", claimRef=RESERVED)], (), "b", id="the volume that is reserved for the claim"),
        pytest.param([available("a"), available("b", node="m", claimRef=RESERVED)], (), None, id="none if the reserved one is elsewhere"),
        pytest.param([available("a", deleting=True)], (), None, id="none that is being deleted"),
        pytest.param([available("a", storageClassName="fast")], (), None, id="none of another class"),
    ],
)
def test_the_volume_that_a_claim_gets_on_a_node(offered: list[VolumeFacts], taken: tuple[str, ...], expected: str | None) -> None:
    found = find_volume_on(DATA, offered, NODE, taken)
    assert (found.name if found else None) == expected


def test_a_delayed_claim_gets_only_a_volume_that_is_reserved_for_it() -> None:
    offered = [available("a"), available("b", claimRef=RESERVED)]
    assert find_volume(DATA, offered[:1], delayed=True) is None
    assert find_volume(DATA, offered, delayed=True) == offered[1]


@pytest.mark.parametrize(
    ("reference", "changed", "by_controller"),
    [
        pytest.param(None, True, True, id="a free volume is reserved by the controller"),
        pytest.param({"namespace": "shop", "name": "data"}, True, False, id="a volume that its author reserved gets the uid only"),
        pytest.param({"namespace": "shop", "name": "data", "uid": "u"}, False, False, id="a reserved volume is left as it is"),
    ],
)
def test_reserve_volume(reference: dict[str, str] | None, changed: bool, by_controller: bool) -> None:
    offered, wanted = volume("v", claimRef=reference), claim()
    wanted.metadata.namespace, wanted.metadata.uid, wanted.metadata.resource_version = "shop", "u", "7"
    assert reserve_volume(offered, wanted) is changed
    assert (BOUND_BY_CONTROLLER in offered.metadata.annotations) is by_controller
    assert offered.spec.claim_ref is not None
    assert (offered.spec.claim_ref.name, offered.spec.claim_ref.uid) == ("data", "u")
    assert not reserve_volume(offered, wanted)
