"""The approver of kubelets' client certificates, and the cleaner of certificate signing requests, by fake time.

The cases are those of Kubernetes pkg/controller/certificates/approver/sarapprove_test.go and cleaner/cleaner_test.go.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from kubeloop.api.authorization.v1 import SubjectAccessReview
from kubeloop.api.certificates.v1 import (
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
    CertificateSigningRequestStatus,
)
from kubeloop.controlplane.accounts.certificates import (
    CLIENT,
    KUBELET_CLIENT,
    KUBELET_SERVING,
    CertificateApprover,
    CertificateCleaner,
    deletion_time,
)
from kubeloop.meta import NotFound, ObjectMeta, ServiceUnavailable
from kubeloop.pki import CertificateAuthority
from kubeloop.testing.calls import RecordedCall, on
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.test_certificates import FOR_CLIENTS, FOR_SERVERS, NODE, NODES, NOW, asked, request

PEM = asked(NODE, NODES)
SELF = "Auto approving self kubelet client certificate after SubjectAccessReview."
ANY = "Auto approving kubelet client certificate after SubjectAccessReview."


class Reviews:
    """Answers SubjectAccessReviews: allows the subresources in ``allowed``, and records which were reviewed."""

    def __init__(self, cluster: FakeTimeCluster, allowed: Collection[str] = ()) -> None:
        self.allowed = set(allowed)
        self.specs: list[dict[str, Any]] = []
        cluster.faults.react(self._review, matching=on("create", SubjectAccessReview))

    @property
    def subresources(self) -> list[str]:
        return [one["resourceAttributes"]["subresource"] for one in self.specs]

    def _review(self, call: RecordedCall) -> dict[str, Any]:
        self.specs.append(call.body["spec"])
        return {**call.body, "status": {"allowed": self.subresources[-1] in self.allowed}}


async def conditions(cluster: FakeTimeCluster) -> list[tuple[str, str | None, str | None]]:
    found = await cluster.client.get(CertificateSigningRequest, "r")
    return [(one.type, one.reason, one.message) for one in found.status.conditions]


@dataclass(frozen=True)
class Case:
    """A request of the user ``requester``, the allowed subresources, and the expected reviews and message of the approval ("": none)."""

    requester: str = NODE
    pem: bytes = PEM
    signer: str = KUBELET_CLIENT
    usages: tuple[str, ...] = tuple(FOR_CLIENTS)
    allowed: tuple[str, ...] = ("selfnodeclient", "nodeclient")
    reviews: tuple[str, ...] = ()
    message: str = ""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(reviews=("selfnodeclient",), message=SELF), id="a node's request for itself is approved"),
        pytest.param(
            Case(usages=("digital signature", "client auth"), reviews=("selfnodeclient",), message=SELF),
            id="a request without key encipherment is approved",
        ),
        pytest.param(
            Case(allowed=("nodeclient",), reviews=("selfnodeclient", "nodeclient"), message=ANY),
            id="a node that may request for any node may request for itself",
        ),
        pytest.param(
            Case(requester="joe", reviews=("nodeclient",), message=ANY), id="a user who may request for any node gets an approval"
        ),
        pytest.param(
            Case(requester="system:node:other", allowed=("selfnodeclient",), reviews=("nodeclient",)),
            id="a node that may request only for itself gets no certificate of another node",
        ),
        pytest.param(Case(allowed=(), reviews=("selfnodeclient", "nodeclient")), id="a node that is not authorized gets no approval"),
        pytest.param(Case(requester="mike", pem=asked("mike", NODES)), id="another common name is not reviewed"),
        pytest.param(Case(pem=asked(NODE)), id="a request without an organization is not reviewed"),
        pytest.param(Case(pem=asked(NODE, ("system:masters",))), id="a request for the masters is not reviewed"),
        pytest.param(Case(pem=asked(NODE, (*NODES, "system:masters"))), id="nor one for nodes and masters"),
        pytest.param(Case(usages=(*FOR_CLIENTS, "server auth")), id="a further usage is not reviewed"),
        pytest.param(Case(signer="example.com/not-correct"), id="another signer's request is not reviewed"),
        pytest.param(Case(signer=KUBELET_SERVING, usages=tuple(FOR_SERVERS)), id="a serving certificate is not reviewed"),
        pytest.param(Case(signer=CLIENT), id="a client certificate of the general signer is not reviewed"),
    ],
)
async def test_a_request_is_approved_if_it_is_a_kubelets_and_the_requester_is_authorized(case: Case) -> None:
    async with simulation() as cluster:
        reviews = Reviews(cluster, case.allowed)
        await cluster.server.client(user=case.requester).create(request("r", case.pem, case.signer, list(case.usages)))
        await cluster.start(CertificateApprover())
        await cluster.pass_time(0.1)
        assert tuple(reviews.subresources) == case.reviews
        assert await conditions(cluster) == ([("Approved", "AutoApproved", case.message)] if case.message else [])


async def test_a_review_names_the_requester_and_the_permission() -> None:
    async with simulation(CertificateApprover()) as cluster:
        reviews = Reviews(cluster, ["selfnodeclient"])
        made = await cluster.server.client(user=NODE).create(request("r", PEM, KUBELET_CLIENT, FOR_CLIENTS))
        await cluster.pass_time(1)
        (spec,) = reviews.specs
        assert (spec["user"], spec["groups"]) == (NODE, made.spec.groups)
        assert spec["resourceAttributes"] == {
            "group": "certificates.k8s.io",
            "version": "*",
            "resource": "certificatesigningrequests",
            "subresource": "selfnodeclient",
            "verb": "create",
        }


@pytest.mark.parametrize("method", ["approve", "deny"])
async def test_a_decided_request_is_not_reviewed(method: str) -> None:
    async with simulation() as cluster:
        reviews = Reviews(cluster, ["selfnodeclient"])
        await cluster.server.client(user=NODE).create(request("r", PEM, KUBELET_CLIENT, FOR_CLIENTS))
        await getattr(cluster.client.certificates, method)("r", reason="Test")
        await cluster.start(CertificateApprover())
        await cluster.pass_time(5)
        assert (reviews.specs, len(await conditions(cluster))) == ([], 1)


async def test_a_requester_who_is_authorized_later_gets_the_approval_then() -> None:
    async with simulation(CertificateApprover()) as cluster:
        reviews = Reviews(cluster)
        await cluster.server.client(user=NODE).create(request("r", PEM, KUBELET_CLIENT, FOR_CLIENTS))
        await cluster.pass_time(60)
        assert await conditions(cluster) == []
        assert len(reviews.specs) in range(8, 24)  # two reviews in each attempt, with growing delays
        reviews.allowed.add("selfnodeclient")
        await cluster.pass_time(120)
        assert await conditions(cluster) == [("Approved", "AutoApproved", SELF)]


async def test_another_request_of_the_same_name_is_not_approved_by_the_review_of_the_first_one() -> None:
    async with simulation() as cluster:
        reviewed: list[str] = []

        async def replace(call: RecordedCall) -> dict[str, Any]:
            reviewed.append(call.body["spec"]["user"])
            if len(reviewed) == 1:
                await cluster.client.delete(CertificateSigningRequest, "r")
                await cluster.server.client(user="mallory").create(request("r", PEM, KUBELET_CLIENT, FOR_CLIENTS))
            return {**call.body, "status": {"allowed": reviewed[-1] == NODE}}

        cluster.faults.react(replace, matching=on("create", SubjectAccessReview))
        await cluster.server.client(user=NODE).create(request("r", PEM, KUBELET_CLIENT, FOR_CLIENTS))
        await cluster.start(CertificateApprover())
        await cluster.pass_time(5)
        assert (reviewed[0], set(reviewed[1:])) == (NODE, {"mallory"})
        assert await conditions(cluster) == []


async def test_a_request_that_is_denied_during_its_review_stays_denied() -> None:
    async with simulation() as cluster:

        async def deny(call: RecordedCall) -> dict[str, Any]:
            await cluster.client.certificates.deny("r", reason="Suspicious")
            return {**call.body, "status": {"allowed": True}}

        cluster.faults.react(deny, matching=on("create", SubjectAccessReview))
        await cluster.server.client(user=NODE).create(request("r", PEM, KUBELET_CLIENT, FOR_CLIENTS))
        await cluster.start(CertificateApprover())
        await cluster.pass_time(5)
        assert [kind for kind, _, _ in await conditions(cluster)] == ["Denied"]


# -------------------------------------------------------------------------------------------------------------------- cleaner

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
#: A certificate that ends half an hour after ``NOW``.
SHORT = CertificateAuthority.create("test", days=1 / 48, now=NOW).certificate
LONG = CertificateAuthority.create("test", now=NOW).certificate


def decided(*kinds: str, certificate: bytes = b"", since: timedelta | None = timedelta()) -> CertificateSigningRequest:
    """Return a request, created a day before ``NOW``, with conditions that were last updated ``since`` after ``NOW``; None: no time."""
    time = None if since is None else NOW + since
    found = [CertificateSigningRequestCondition(type=kind, status="True", last_update_time=time) for kind in kinds]
    status = CertificateSigningRequestStatus(conditions=found, certificate=certificate)
    return CertificateSigningRequest(metadata=ObjectMeta(name="r", creation_timestamp=NOW - DAY), status=status)


@pytest.mark.parametrize(
    ("signing_request", "kept"),
    [
        pytest.param(decided(), timedelta(), id="no decision: a day after the creation"),
        pytest.param(decided("Approved"), DAY, id="approved, no certificate: a day after the approval"),
        pytest.param(decided("Approved", certificate=LONG), HOUR, id="issued: an hour after the approval"),
        pytest.param(decided("Approved", certificate=SHORT), HOUR / 2, id="issued, expires earlier: at the expiry"),
        pytest.param(decided("Approved", certificate=SHORT, since=None), HOUR / 2, id="issued, time unknown: at the expiry"),
        pytest.param(decided("Approved", certificate=b"x"), HOUR, id="issued, unreadable: an hour after the approval"),
        pytest.param(decided("Denied"), HOUR, id="denied: an hour after the denial"),
        pytest.param(decided("Failed"), HOUR, id="failed: an hour after the failure"),
        pytest.param(decided("Approved", "Failed"), HOUR, id="approved and failed: an hour after the failure"),
        pytest.param(decided("Denied", since=None), None, id="denied, time unknown: for ever"),
        pytest.param(decided("Approved", since=None), None, id="approved, time unknown: for ever"),
        pytest.param(decided("Other", since=-30 * DAY), None, id="only another condition: for ever"),
    ],
)
def test_a_request_is_kept(signing_request: CertificateSigningRequest, kept: timedelta | None) -> None:
    assert deletion_time(signing_request) == (None if kept is None else NOW + kept)


async def exists(cluster: FakeTimeCluster) -> bool:
    try:
        await cluster.client.get(CertificateSigningRequest, "r")
    except NotFound:
        return False
    return True


async def test_an_undecided_request_is_deleted_after_a_day() -> None:
    async with simulation(CertificateCleaner()) as cluster:
        await cluster.client.create(request("r", PEM, CLIENT, FOR_CLIENTS))
        await cluster.pass_time(DAY.total_seconds() - 5)
        assert await exists(cluster)
        await cluster.pass_time(10)
        assert not await exists(cluster)


async def test_a_decision_replaces_the_earlier_end() -> None:
    async with simulation(CertificateCleaner()) as cluster:
        await cluster.client.create(request("r", PEM, CLIENT, FOR_CLIENTS))
        await cluster.pass_time(HOUR.total_seconds())
        await cluster.client.certificates.deny("r", reason="Unknown")
        await cluster.pass_time(HOUR.total_seconds() - 5)
        assert await exists(cluster)
        await cluster.pass_time(10)
        assert not await exists(cluster)


async def test_a_cleaner_that_starts_late_deletes_what_has_ended_and_tries_again_after_an_error() -> None:
    async with simulation() as cluster:
        await cluster.client.create(request("r", PEM, CLIENT, FOR_CLIENTS))
        await cluster.client.certificates.deny("r", reason="Unknown")
        await cluster.pass_time(2 * HOUR.total_seconds())
        cluster.faults.refuse(ServiceUnavailable, times=3, matching=on("delete", CertificateSigningRequest))
        await cluster.start(CertificateCleaner())
        await cluster.pass_time(30)
        assert not await exists(cluster)
