"""Subresources: some with their own verb, and any other by its name."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubeloop.api.authentication.v1 import TokenRequest, TokenRequestSpec
from kubeloop.api.autoscaling.v1 import Scale, ScaleSpec
from kubeloop.api.certificates.v1 import CertificateSigningRequest, CertificateSigningRequestSpec
from kubeloop.api.core.v1 import (
    Container,
    EphemeralContainer,
    Namespace,
    Pod,
    PodSpec,
    PodTemplateSpec,
    ReplicationController,
    ReplicationControllerSpec,
    ResourceRequirements,
)
from kubeloop.api.policy.v1 import Eviction, PodDisruptionBudget, PodDisruptionBudgetSpec
from kubeloop.client import Client, DeleteOptions, WriteOptions
from kubeloop.client.verbs.subresources import read_scale
from kubeloop.meta import Conflict, DecodeError, Invalid, LabelSelector, NotFound, ObjectMeta, Quantity, Status, TooManyRequests

pytestmark = pytest.mark.server


def pod(name: str = "p", **labels: str) -> Pod:
    # No scheduler of that name: the pod stays as it is, also beside a real scheduler.
    spec = PodSpec(scheduler_name="absent", containers=[Container(name="c", image="nginx")])
    return Pod(metadata=ObjectMeta(name=name, labels=labels), spec=spec)


def controller() -> ReplicationController:
    """A kind with a scale whose status no controller of the test's server writes."""
    labels = {"app": "web"}
    template = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[Container(name="c", image="nginx")]))
    spec = ReplicationControllerSpec(replicas=1, selector=labels, template=template)
    return ReplicationController(metadata=ObjectMeta(name="web"), spec=spec)


class TestScale:
    async def test_it_is_set_only_at_the_version_that_was_seen_if_so_asked(self, client: Client, namespace: str) -> None:
        created = await client.create(controller())
        await client.set_scale(ReplicationController, "web", 2, resource_version=created.metadata.resource_version)
        with pytest.raises(Conflict):
            await client.set_scale(ReplicationController, "web", 3, resource_version=created.metadata.resource_version)

    @pytest.mark.parametrize("replicas", [-1, "3", True, 1.5])
    async def test_a_value_that_is_no_number_of_replicas_is_refused_before_it_is_sent(self, client: Client, replicas: Any) -> None:
        with pytest.raises(ValueError, match=r"replicas=.*: must be a whole number, 0 or more"):
            await client.set_scale(ReplicationController, "web", replicas)

    async def test_a_dry_run_scales_nothing(self, client: Client, namespace: str) -> None:
        await client.create(controller())
        assert (await client.set_scale(ReplicationController, "web", 5, options=WriteOptions(dry_run=True))).spec.replicas == 5
        assert (await client.get_scale(ReplicationController, "web")).spec.replicas == 1

    async def test_o192_it_is_read_updated_and_patched_as_what_it_is(self, client: Client, namespace: str) -> None:
        await client.create(controller())
        scale = client.subresource(ReplicationController, "web", "scale")
        read = await scale.get(Scale)
        assert (read.spec.replicas, read.status.selector) == (1, "app=web")
        read.spec.replicas = 2
        assert (await scale.update(read)).spec.replicas == 2
        assert (await scale.patch(Scale, Scale(spec=ScaleSpec(replicas=3)))).spec.replicas == 3
        applied = await scale.apply(Scale(metadata=ObjectMeta(name="web"), spec=ScaleSpec(replicas=4)), field_manager="ops", force=True)
        assert applied.spec.replicas == 4


@pytest.mark.parametrize("version", ["extensions/v1beta1", "apps/v1beta1", "apps/v1beta2"])
def test_o192_a_scale_of_an_older_group_version_is_read_as_the_newest(version: str) -> None:
    body = b'{"kind":"Scale","apiVersion":"%s","metadata":{"name":"web"},"spec":{"replicas":2},"status":{"replicas":1,%s}}'
    of_map = read_scale(body % (version.encode(), b'"selector":{"b":"2","a":"1"}'))
    assert (of_map.kind, of_map.api_version, of_map.metadata.name) == ("Scale", "autoscaling/v1", "web")
    assert (of_map.spec.replicas, of_map.status.replicas, of_map.status.selector) == (2, 1, "a=1,b=2")
    of_text = read_scale(body % (version.encode(), b'"selector":{"a":"1"},"targetSelector":"a in (1,2)"'))
    assert of_text.status.selector == "a in (1,2)"


def test_an_object_that_is_no_scale_is_refused() -> None:
    with pytest.raises(DecodeError, match="expected autoscaling/v1, Kind=Scale, got v1, Kind=Pod"):
        read_scale(b'{"kind":"Pod","apiVersion":"v1"}')
    with pytest.raises(DecodeError, match="the answer is not a Scale"):
        read_scale(b"oops")


class TestEviction:
    async def test_a_budget_that_does_not_allow_it_is_named(self, client: Client, namespace: str) -> None:
        budget = PodDisruptionBudgetSpec(min_available=1, selector=LabelSelector(match_labels={"app": "web"}))
        await client.create(PodDisruptionBudget(metadata=ObjectMeta(name="keep"), spec=budget))
        counted = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        await client.patch(PodDisruptionBudget, "keep", {"status": counted}, subresource="status")
        await client.create(pod(app="web"))
        await client.pods.bind("p", "n1")
        status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await client.patch(Pod, "p", status, subresource="status")
        with pytest.raises(TooManyRequests, match="disruption budget"):
            await client.pods.evict("p")
        await client.delete(Pod, "p", grace_period_seconds=0)

    async def test_a_dry_run_and_preconditions_go_with_it(self, client: Client, namespace: str) -> None:
        await client.create(pod())
        await client.pods.evict("p", options=DeleteOptions(dry_run=True))
        with pytest.raises(Conflict):
            await client.pods.evict("p", options=DeleteOptions(uid="another"))
        await client.with_options(dry_run=True).pods.evict("p")
        assert (await client.get(Pod, "p")).metadata.name == "p"

    async def test_it_can_be_sent_as_the_kind_that_it_is(self, client: Client, namespace: str) -> None:
        await client.create(pod())
        answer = await client.subresource(Pod, "p", "eviction").create(Eviction(metadata=ObjectMeta(name="p")))
        assert isinstance(answer, Status)
        with pytest.raises(NotFound):
            await client.get(Pod, "p")


class TestAnyOther:
    async def test_a_namespace_is_finished(self, client: Client, namespace: str) -> None:
        name = f"{namespace}-ends"
        await client.create(Namespace(metadata=ObjectMeta(name=name, finalizers=["example.com/hold"])))
        going = (await client.delete(Namespace, name)).object
        assert going is not None
        going.spec.finalizers.clear()
        going.metadata.resource_version = ""  # the namespace controller may have written in between
        finished = await client.subresource(Namespace, name, "finalize").update(going)
        assert finished.spec.finalizers == []
        await client.patch(Namespace, name, {"metadata": {"finalizers": None}})

    async def test_ephemeral_containers_are_added_to_a_pod(self, client: Client, namespace: str) -> None:
        await client.create(pod())
        found = await client.get(Pod, "p")
        assert found.spec is not None
        found.spec.ephemeral_containers.append(EphemeralContainer(name="debug", image="busybox"))
        updated = await client.subresource(Pod, "p", "ephemeralcontainers").update(found)
        assert updated.spec is not None
        assert [one.name for one in updated.spec.ephemeral_containers] == ["debug"]

    async def test_a_pod_is_resized(self, client: Client, namespace: str) -> None:
        created = pod()
        assert created.spec is not None
        created.spec.containers[0].resources = ResourceRequirements(requests={"cpu": Quantity("100m")})
        await client.create(created)
        resources = ResourceRequirements(requests={"cpu": Quantity("10m")})
        part = Pod(spec=PodSpec(containers=[Container(name="c", resources=resources)]))
        resized = await client.subresource(Pod, "p", "resize").patch(Pod, part, type="strategic")
        assert resized.spec is not None
        assert resized.spec.containers[0].resources.requests == {"cpu": Quantity("10m")}

    async def test_an_unknown_subresource_is_not_found(self, client: Client, namespace: str) -> None:
        await client.create(pod())
        with pytest.raises(NotFound):
            await client.subresource(Pod, "p", "nothing").get(Pod)

    async def test_an_object_made_here_does_not_replace_one(self, client: Client, namespace: str) -> None:
        with pytest.raises(Exception, match="was made here, not read"):
            await client.subresource(Pod, "p", "status").update(pod())


def signing_request(name: str) -> CertificateSigningRequest:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "someone")])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    spec = CertificateSigningRequestSpec(
        request=request.public_bytes(serialization.Encoding.PEM), signer_name="example.com/signer", usages=["client auth"]
    )
    return CertificateSigningRequest(metadata=ObjectMeta(name=name), spec=spec)


class TestApproval:
    async def test_a_request_is_approved_once_and_denied_no_more(self, client: Client, namespace: str) -> None:
        await client.create(signing_request(namespace))
        try:
            approved = await client.certificates.approve(namespace, reason="Known", message="asked for by the team")
            [condition] = approved.status.conditions
            assert (condition.type, condition.status, condition.reason, condition.message) == (
                "Approved",
                "True",
                "Known",
                "asked for by the team",
            )
            again = await client.certificates.approve(namespace, reason="Known")
            assert again.metadata.resource_version == approved.metadata.resource_version
            with pytest.raises(Invalid):
                await client.certificates.deny(namespace, reason="Unknown")
        finally:
            await client.delete(CertificateSigningRequest, namespace)

    async def test_a_request_is_denied(self, client: Client, namespace: str) -> None:
        await client.create(signing_request(namespace))
        try:
            denied = await client.certificates.deny(namespace, reason="Unknown")
            assert [(one.type, one.reason) for one in denied.status.conditions] == [("Denied", "Unknown")]
        finally:
            await client.delete(CertificateSigningRequest, namespace)


class TestTokens:
    async def test_a_token_is_issued_for_its_audience_and_time(self, client: Client, namespace: str) -> None:
        token = await client.service_accounts.create_token("default", audiences=["shop"], expiration_seconds=600)
        assert token.status.token.count(".") == 2
        assert token.spec.audiences == ["shop"]
        assert token.status.expiration_timestamp is not None
        left = token.status.expiration_timestamp - datetime.datetime.now(datetime.UTC)
        assert left < datetime.timedelta(hours=1)

    async def test_it_can_be_bound_to_a_pod(self, client: Client, namespace: str) -> None:
        found = await client.create(pod())
        token = await client.service_accounts.create_token("default", bound_to=found)
        assert token.spec.bound_object_ref is not None
        assert (token.spec.bound_object_ref.kind, token.spec.bound_object_ref.uid) == ("Pod", found.metadata.uid)

    async def test_too_short_a_time_is_invalid(self, client: Client, namespace: str) -> None:
        with pytest.raises(Invalid):
            await client.service_accounts.create_token("default", expiration_seconds=1)

    async def test_the_request_itself_can_be_sent(self, client: Client, namespace: str) -> None:
        from kubeloop.api.core.v1 import ServiceAccount

        request = TokenRequest(spec=TokenRequestSpec(audiences=["shop"]))
        answer = await client.subresource(ServiceAccount, "default", "token").create(request)
        assert isinstance(answer, TokenRequest)
