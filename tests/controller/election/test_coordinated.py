"""Coordinated election (behaviour I130): the server's part is played by the test, since neither server has the API turned on."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.coordination.v1beta1 import LeaseCandidate as CandidateObject
from kubeloop.client import Client
from kubeloop.controller.election import LeaseCandidate, LeaseConfig
from kubeloop.meta import NotFound, UnknownKind, Unstructured
from kubeloop.testing import HandlerServer
from tests.controller.election.candidates import Candidates, StallingClock, of

Definition = Unstructured.for_kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", plural="customresourcedefinitions", namespaced=False
)
CONFIG = LeaseConfig("lock", "default", "candidate-a", coordinated=True)


async def serve_candidates(client: Client) -> None:
    """As a custom resource: the same paths and fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "metadata": {
            "name": "leasecandidates.coordination.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/4356"},
        },
        "spec": {
            "group": "coordination.k8s.io",
            "scope": "Namespaced",
            "names": {
                "plural": "leasecandidates",
                "singular": "leasecandidate",
                "kind": "LeaseCandidate",
                "listKind": "LeaseCandidateList",
            },
            "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    await client.create(Definition.from_dict(definition))


async def test_a_candidate_says_that_it_stands_and_answers_when_asked(in_process: HandlerServer, clock: StallingClock) -> None:
    client = in_process.client()
    await serve_candidates(client)
    standing = asyncio.create_task(LeaseCandidate(client, CONFIG, binary_version="1.2.0", emulation_version="1.1.0").run())

    async def there() -> bool:
        try:
            await client.get(CandidateObject, "candidate-a")
        except NotFound:
            return False
        return True

    async with asyncio.timeout(30):
        while not await there():
            await clock.advance(2)
    made = await client.get(CandidateObject, "candidate-a")
    spec = made.spec
    assert (spec.lease_name, spec.binary_version, spec.emulation_version, spec.strategy) == (
        "lock",
        "1.2.0",
        "1.1.0",
        "OldestEmulationVersion",
    )
    assert made.metadata.generation == 1, "it is written once"
    await clock.advance(60)
    assert (await client.get(CandidateObject, "candidate-a")).spec.renew_time == spec.renew_time

    made.spec.ping_time = clock.wall() + timedelta(seconds=1)
    await client.update(made)
    await clock.advance(4)
    answered = (await client.get(CandidateObject, "candidate-a")).spec
    assert answered.renew_time is not None
    assert spec.renew_time is not None
    assert answered.renew_time > spec.renew_time
    assert answered.ping_time == made.spec.ping_time

    await clock.advance(301)
    later = (await client.get(CandidateObject, "candidate-a")).spec
    assert later.renew_time is not None
    assert later.renew_time > answered.renew_time
    standing.cancel()
    await asyncio.wait((standing,))


@pytest.mark.server
async def test_a_server_without_candidates_is_said_to_have_none(client: Client) -> None:
    with pytest.raises(UnknownKind, match=r"coordinated election is not served here: .*feature gate CoordinatedLeaderElection"):
        await LeaseCandidate(client, CONFIG, binary_version="1.2.0").run()


async def test_a_coordinated_elector_takes_nothing_leads_when_chosen_and_ends_when_another_is_preferred(
    candidates: Candidates, clock: StallingClock
) -> None:
    one = candidates.start("a", coordinated=True)
    await clock.advance(60)
    with pytest.raises(NotFound):
        await candidates.lease()
    assert (candidates.leading, one.calls) == ([], [])
    lease = await candidates.hold("a", transitions=1)
    await clock.advance(6)
    assert candidates.leading == ["a"]
    assert (await candidates.lease()).spec.lease_transitions == lease.spec.lease_transitions

    lease = await candidates.lease()
    # The gate is off: the server would drop the field.
    lease.spec.preferred_holder = "b"
    answer = candidates.server.faults.react(lambda _: lease, matching=of("a", "get"))
    await clock.advance(2)
    answer()
    assert str(await one.ended()) == 'lease default/lock is lost: the server asks to hand over to "b"'
    assert one.calls == ["started", "ended", "stopped"]


async def test_a_coordinated_leader_whose_lease_is_deleted_stops_leading(candidates: Candidates, clock: StallingClock) -> None:
    one = candidates.start("a", coordinated=True)
    await candidates.hold("a", transitions=1)
    await clock.advance(6)
    assert candidates.leading == ["a"]
    await candidates.server.client().delete(Lease, "lock")
    await clock.advance(20)
    assert "lease default/lock is lost" in str(await one.ended())
    with pytest.raises(NotFound):
        await candidates.lease()
