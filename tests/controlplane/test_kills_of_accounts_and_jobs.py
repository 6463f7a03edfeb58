"""Controllers of accounts, certificates, Jobs and classes, and the scheduler, end in the same state wherever they are killed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubeloop.api.batch.v1 import CronJob, Job
from kubeloop.api.certificates.v1 import CertificateSigningRequest, CertificateSigningRequestCondition
from kubeloop.api.core.v1 import Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod, PodCondition, Secret, ServiceAccount
from kubeloop.api.storage.v1 import StorageClass, VolumeAttributesClass
from kubeloop.controller import set_controller_reference
from kubeloop.controlplane.accounts.certificates import (
    CLIENT,
    KUBELET_CLIENT,
    CertificateApprover,
    CertificateCleaner,
    CertificateSigner,
)
from kubeloop.controlplane.accounts.service_accounts import TokenReferenceController, TokenSecretController
from kubeloop.controlplane.garbage_collection.garbage_collector import GarbageCollector
from kubeloop.controlplane.policy.disruption import StaleDisruptionController
from kubeloop.controlplane.scheduling.scheduler import Scheduler
from kubeloop.controlplane.storage.host_path_provisioner import StandardClassCreator
from kubeloop.controlplane.storage.volumes import AttributesClassProtectionController
from kubeloop.controlplane.workloads.cron_job import CronJobController
from kubeloop.controlplane.workloads.job import JobController
from kubeloop.controlplane.workloads.job_cleanup import FinishedJobCleaner, JobFinalizerController
from kubeloop.controlplane.workloads.job_snapshot import TRACKING
from kubeloop.meta import ObjectMeta
from kubeloop.pki import CertificateAuthority, SigningKey
from tests.controlplane.cron_jobs import cron_job
from tests.controlplane.jobs import job
from tests.controlplane.kills import KillScenario, assert_survives_kills
from tests.controlplane.simulated import FakeTimeCluster
from tests.controlplane.storage import claim, volume
from tests.controlplane.test_certificates import FOR_CLIENTS, FOR_SERVERS, NODES, asked, request
from tests.controlplane.test_cron_job import finish
from tests.controlplane.test_scheduler import important, priorities
from tests.controlplane.test_scheduler import pod as pod_with_cpu
from tests.controlplane.workloads import pod, pod_spec, read

#: The authority is valid at the beginning of fake time.
AUTHORITY = CertificateAuthority.create("test", now=datetime(2026, 1, 1, tzinfo=UTC))
TOKENS = SigningKey.create()
REQUESTS = {name: asked(f"system:node:{name}", NODES) for name in ("a", "b", "c", "d")}


async def request_certificates(cluster: FakeTimeCluster) -> None:
    """Let two kubelets request certificates for themselves, and one for another node."""
    for user, name in (("a", "a"), ("b", "b"), ("a", "c")):
        kubelet = cluster.server.client(user=f"system:node:{user}")
        await kubelet.create(request(name, REQUESTS[name], KUBELET_CLIENT, FOR_CLIENTS))
    await cluster.client.create(request("other", REQUESTS["d"], CLIENT, FOR_CLIENTS))


async def approve_certificates(cluster: FakeTimeCluster) -> None:
    """Approve two requests that are signed, and one that the signer refuses."""
    await cluster.client.create(request("a", REQUESTS["a"], KUBELET_CLIENT, FOR_CLIENTS))
    await cluster.client.create(request("b", REQUESTS["b"], CLIENT, FOR_CLIENTS))
    await cluster.client.create(request("c", REQUESTS["c"], CLIENT, FOR_SERVERS))
    await cluster.pass_time(5)
    for name in ("a", "b", "c"):
        await cluster.client.certificates.approve(name, reason="Known")


async def outlive_certificates(cluster: FakeTimeCluster) -> None:
    """Let a denied, a failed and an approved request exceed their retention, and keep an undecided one."""
    for name in REQUESTS:
        await cluster.client.create(request(name, REQUESTS[name], CLIENT, FOR_CLIENTS))
    await cluster.client.certificates.deny("a", reason="Unknown")
    long_ago = cluster.clock.wall().replace(day=1, year=2025)
    approved = await cluster.client.get(CertificateSigningRequest, "b")
    approved.status.conditions = [
        CertificateSigningRequestCondition(type="Approved", status="True", reason="Known", last_update_time=long_ago)
    ]
    await cluster.client.subresource(CertificateSigningRequest, "b", "approval").update(approved)
    failed = await cluster.client.get(CertificateSigningRequest, "c")
    failed.status.conditions = [CertificateSigningRequestCondition(type="Failed", status="True", reason="Test")]
    await cluster.client.update_status(failed)
    await cluster.pass_time(3700)


def token_secret(name: str, account: str) -> Secret:
    annotations = {"kubernetes.io/service-account.name": account}
    return Secret(metadata=ObjectMeta(name=name, annotations=annotations), type="kubernetes.io/service-account-token")


async def fill_tokens(cluster: FakeTimeCluster) -> None:
    """Create the Secrets of three accounts, remove the token of one, and delete the account of another."""
    for name in ("a", "b", "c"):
        await cluster.client.create(ServiceAccount(metadata=ObjectMeta(name=name)))
        await cluster.client.create(token_secret(f"token-{name}", name))
    await cluster.pass_time(5)
    await cluster.client.patch(Secret, "token-a", {"data": {"token": None}})
    await cluster.client.delete(ServiceAccount, "b")
    await cluster.client.create(token_secret("token-d", "missing"))


async def remove_references(cluster: FakeTimeCluster) -> None:
    """Delete the Secrets of an account one after the other.

    As with kube-controller-manager, a reference stays if its Secret is deleted while no controller runs.
    """
    names = ("a", "b", "c")
    account = ServiceAccount(metadata=ObjectMeta(name="robot"), secrets=[ObjectReference(name=name) for name in names])
    await cluster.client.create(account)
    for name in names:
        await cluster.client.create(token_secret(name, "robot"))
    for name in names[:2]:
        await cluster.pass_time(5)
        await cluster.client.delete(Secret, name)


async def end_jobs(cluster: FakeTimeCluster) -> None:
    """Let three Jobs end, two of which have a time to live."""
    for name, ttl in (("a", 10), ("b", 20), ("c", None)):
        await cluster.client.create(job(name, ttlSecondsAfterFinished=ttl))
        await finish(cluster, name)
    await cluster.pass_time(30)


async def abandon_pods(cluster: FakeTimeCluster) -> None:
    """Create pods with the finalizer of Jobs: of a Job that is deleted, of one that ends, of one that runs, and without a Job."""
    for name in ("deleted", "ended", "running"):
        owner = await cluster.client.create(job(name))
        for number in range(2):
            owned = Pod(metadata=ObjectMeta(name=f"{name}-{number}", namespace="default", finalizers=[TRACKING]), spec=pod_spec())
            set_controller_reference(owner, owned)
            await cluster.client.create(owned)
    await cluster.client.create(Pod(metadata=ObjectMeta(name="single", finalizers=[TRACKING]), spec=pod_spec()))
    await cluster.pass_time(5)
    await finish(cluster, "ended")
    await cluster.client.delete(Job, "deleted", propagation_policy="Background")


async def protect_classes(cluster: FakeTimeCluster) -> None:
    """Delete three attributes classes: one is unused, one loses its claim, and one is still used by a volume."""
    for name in ("unused", "claimed", "used"):
        document: dict[str, object] = {"metadata": {"name": name}, "driverName": "example.com", "parameters": {"size": "1"}}
        await cluster.client.create(read(VolumeAttributesClass, document))
        # Admission has added the finalizer; a class that is older than the plug-in lacks it.
        await cluster.client.patch(VolumeAttributesClass, name, {"metadata": {"finalizers": None}})
    await cluster.client.create(claim("data", volumeAttributesClassName="claimed"))
    source = {"csi": {"driver": "example.com", "volumeHandle": "v"}}
    await cluster.client.create(volume("v", source=source, volumeAttributesClassName="used"))
    await cluster.pass_time(5)
    for name in ("unused", "claimed", "used"):
        await cluster.client.delete(VolumeAttributesClass, name)
    await cluster.pass_time(5)
    await cluster.client.patch(PersistentVolumeClaim, "data", {"metadata": {"finalizers": None}})
    await cluster.client.delete(PersistentVolumeClaim, "data")


async def wait_for_class(cluster: FakeTimeCluster) -> None:
    await cluster.pass_time(5)


async def forget_evictions(cluster: FakeTimeCluster) -> None:
    """Let the evictions of two pods lead to no deletion."""
    for name in ("a", "b"):
        evicted = await cluster.client.create(pod(name))
        since = cluster.clock.wall().replace(microsecond=0)
        evicted.status.conditions = [PodCondition(type="DisruptionTarget", status="True", reason="Test", last_transition_time=since)]
        await cluster.client.update_status(evicted)
    await cluster.pass_time(150)


async def run_cron_jobs(cluster: FakeTimeCluster) -> None:
    """Let three times pass: the Jobs of one CronJob end, those of the other are replaced while they run."""
    await cluster.client.create(cron_job("ends", successfulJobsHistoryLimit=1))
    await cluster.client.create(cron_job("replaces", concurrencyPolicy="Replace"))
    await cluster.pass_time(125)
    for _ in range(2):
        for one in await cluster.client.list(Job):
            if one.metadata.name.startswith("ends") and not one.status.conditions:
                await finish(cluster, one.metadata.name)
        await cluster.pass_time(120)


async def run_job(cluster: FakeTimeCluster) -> None:
    """Let one pod of an indexed Job fail, and two succeed."""
    await cluster.client.create(job("j", completions=2, parallelism=2, completionMode="Indexed"))
    await cluster.pass_time(10)
    for round_number in range(2):
        running = [one for one in await cluster.client.list(Pod) if one.status.phase == "Pending"]
        for one in sorted(running, key=lambda each: each.metadata.annotations["batch.kubernetes.io/job-completion-index"]):
            fails = round_number == 0 and one is running[0]
            terminated = {"exitCode": int(fails), "finishedAt": cluster.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ")}
            status = {
                "phase": "Failed" if fails else "Succeeded",
                "containerStatuses": [{"name": "c", "state": {"terminated": terminated}}],
            }
            await cluster.client.patch(Pod, one.metadata.name, {"status": status}, subresource="status")
        await cluster.pass_time(40)


async def schedule_pods(cluster: FakeTimeCluster) -> None:
    """Bind two pods, preempt one of them for a third, and refuse a fourth."""
    await cluster.add_node("a")
    await cluster.add_node("b", cpu="2")
    await priorities(cluster)
    for name, cpu in (("first", "3"), ("second", "2"), ("large", "8")):
        await cluster.client.create(pod_with_cpu(name, cpu))
        await cluster.pass_time(2)
    await cluster.client.create(important("high"))


SCENARIOS = [
    pytest.param(KillScenario(lambda: [CertificateApprover()], request_certificates, [CertificateSigningRequest]), 6, id="CSR approver"),
    pytest.param(
        KillScenario(
            lambda: [CertificateSigner(AUTHORITY)],
            approve_certificates,
            [CertificateSigningRequest],
            random_fields=frozenset({"certificate"}),
        ),
        3,
        id="CSR signer",
    ),
    pytest.param(KillScenario(lambda: [CertificateCleaner()], outlive_certificates, [CertificateSigningRequest]), 3, id="CSR cleaner"),
    pytest.param(
        KillScenario(
            lambda: [TokenSecretController("authority", TOKENS)],
            fill_tokens,
            [ServiceAccount, Secret],
            random_fields=frozenset({"token"}),
        ),
        6,
        id="token Secrets",
    ),
    pytest.param(
        KillScenario(lambda: [TokenReferenceController()], remove_references, [ServiceAccount, Secret]), 2, id="references to token Secrets"
    ),
    pytest.param(
        KillScenario(lambda: [FinishedJobCleaner()], end_jobs, [Job], companions=lambda: [GarbageCollector([Job, Pod])]),
        2,
        id="TTL after finished",
    ),
    pytest.param(KillScenario(lambda: [JobFinalizerController()], abandon_pods, [Job, Pod]), 5, id="finalizers of Jobs"),
    pytest.param(
        KillScenario(
            lambda: [AttributesClassProtectionController()],
            protect_classes,
            [VolumeAttributesClass, PersistentVolumeClaim, PersistentVolume],
        ),
        5,
        id="attributes classes",
    ),
    pytest.param(KillScenario(lambda: [StandardClassCreator()], wait_for_class, [StorageClass]), 1, id="standard class"),
    pytest.param(KillScenario(lambda: [StaleDisruptionController()], forget_evictions, [Pod]), 2, id="stale evictions"),
    pytest.param(KillScenario(lambda: [CronJobController()], run_cron_jobs, [CronJob, Job]), 12, id="CronJob"),
    pytest.param(KillScenario(lambda: [JobController()], run_job, [Job, Pod]), 10, id="Job"),
    pytest.param(KillScenario(lambda: [Scheduler()], schedule_pods, [Node, Pod]), 6, id="scheduler"),
]


@pytest.mark.parametrize(("scenario", "least_writes"), SCENARIOS)
async def test_controllers_survive_a_kill_after_each_write_and_a_second_replica(scenario: KillScenario, least_writes: int) -> None:
    writes = await assert_survives_kills(scenario)
    assert len(writes) >= least_writes
