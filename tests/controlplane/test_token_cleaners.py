"""Bootstrap tokens and legacy tokens of service accounts: signatures, expiry and deletion."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap, ObjectReference, Pod, Secret, ServiceAccount
from kubeloop.controlplane.accounts.bootstrap_tokens import (
    BootstrapSigner,
    BootstrapTokenCleaner,
    detached_signature,
    expiry_of,
    signed,
    signing_key,
)
from kubeloop.controlplane.accounts.legacy_tokens import INVALID_SINCE, LegacyTokenCleaner, decide, is_tracked_long_enough, secrets_of
from kubeloop.meta import ObjectMeta
from tests.controlplane.kills import KillScenario, assert_survives_kills
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.workloads import pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)
JWS = "jws-kubeconfig-"
#: The text, id and secrets of upstream's test of signatures.
_HELLO = "Hello from the other side. I must have called a thousand times."


def token(token_id: str = "abcdef", name: str = "", **data: str) -> Secret:
    contents = {"token-id": token_id, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true"} | data
    metadata = ObjectMeta(name=name or f"bootstrap-token-{token_id}", namespace="kube-system")
    return Secret(
        metadata=metadata,
        type="bootstrap.kubernetes.io/token",
        data={key.replace("_", "-"): text.encode() for key, text in contents.items() if text},
    )


@pytest.mark.parametrize(
    ("content", "secret", "expected"),
    [
        (
            "Hello from the other side. I must have called a thousand times.",
            "my voice is my passcode",
            "VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8",
        ),
        ("", "my voice is my passcode", "7Ui1ALizW4jXphVUB7xUqC9vLYLL9RZeOFfVLoB7Tgk"),
        (_HELLO, "", "UfkqvDGiIFxrMnFseDj9LYJOLNrvjW8aHhF71mvvAs8"),
    ],
)
def test_signatures_are_those_of_upstream(content: str, secret: str, expected: str) -> None:
    assert detached_signature(content, "joshua", secret) == f"eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..{expected}"


@pytest.mark.parametrize(
    ("secret", "expected"),
    [
        pytest.param(token(), True, id="a token that signs"),
        pytest.param(token(name="bootstrap-token-ABCDEF"), False, id="the name of a Secret has the id in lower case"),
        pytest.param(token(name="other"), False, id="another name"),
        pytest.param(token(name="bootstrap-token-zzzzzz"), False, id="another id than in the name"),
        pytest.param(token(**{"token-secret": ""}), False, id="no secret"),
        pytest.param(token(**{"usage-bootstrap-signing": "false"}), False, id="not for signing"),
        pytest.param(token(expiration="2025-12-31T23:59:59Z"), False, id="expired"),
        pytest.param(token(expiration="2026-01-01T00:00:01Z"), True, id="not yet expired"),
        pytest.param(token(expiration="tomorrow"), False, id="an expiry that cannot be read"),
    ],
)
def test_which_tokens_sign(secret: Secret, expected: bool) -> None:
    assert (signing_key(secret, NOW) is not None) is expected


def test_signatures_of_tokens_that_are_gone_are_removed() -> None:
    before = {"kubeconfig": "k", "other": "x", f"{JWS}zzzzzz": "old"}
    after = signed(before, [token()], NOW)
    assert after == {"kubeconfig": "k", "other": "x", f"{JWS}abcdef": detached_signature("k", "abcdef", "0123456789abcdef")}
    assert signed({f"{JWS}zzzzzz": "old"}, [token()], NOW) == {f"{JWS}zzzzzz": "old"}, "there is nothing to sign"


def test_expiry() -> None:
    assert expiry_of(token()) is None
    assert expiry_of(token(expiration="2026-01-01T01:00:00+01:00")) == NOW


async def write_tokens(cluster: FakeTimeCluster) -> None:
    info = ConfigMap(metadata=ObjectMeta(name="cluster-info", namespace="kube-public"), data={"kubeconfig": "k"})
    await cluster.client.create(info)
    await cluster.client.create(token())
    await cluster.client.create(token("zzzzzz", expiration="2026-01-01T00:01:00Z"))
    await cluster.pass_time(5)


async def data(cluster: FakeTimeCluster) -> set[str]:
    return set((await cluster.client.get(ConfigMap, "cluster-info", namespace="kube-public")).data)


async def test_cluster_info_is_signed_and_expired_tokens_are_deleted() -> None:
    async with simulation(BootstrapSigner(), BootstrapTokenCleaner()) as cluster:
        await write_tokens(cluster)
        assert await data(cluster) == {"kubeconfig", f"{JWS}abcdef", f"{JWS}zzzzzz"}
        await cluster.pass_time(50)
        assert len(await cluster.client.list(Secret, namespace="kube-system")) == 2
        await cluster.pass_time(10)
        assert [one.metadata.name for one in await cluster.client.list(Secret, namespace="kube-system")] == ["bootstrap-token-abcdef"]
        assert await data(cluster) == {"kubeconfig", f"{JWS}abcdef"}
        await cluster.client.delete(Secret, "bootstrap-token-abcdef", namespace="kube-system")
        await cluster.pass_time(1)
        assert await data(cluster) == {"kubeconfig"}


def legacy(age_days: int, *, used: str = "", invalid: str = "", **fields: Any) -> Secret:
    labels = {"kubernetes.io/legacy-token-last-used": used, "kubernetes.io/legacy-token-invalid-since": invalid}
    metadata = ObjectMeta(
        name="t",
        creation_timestamp=NOW - timedelta(days=age_days),
        labels={key: text for key, text in labels.items() if text},
        **fields,
    )
    return Secret(metadata=metadata, type="kubernetes.io/service-account-token")


@pytest.mark.parametrize(
    ("secret", "expected"),
    [
        pytest.param(legacy(400), "mark", id="an old token that was never used"),
        pytest.param(legacy(365), "leave", id="a token that is just a year old"),
        pytest.param(legacy(400, used="2024-12-31"), "mark", id="used more than a year ago"),
        pytest.param(legacy(400, used="2025-01-01"), "leave", id="used a year ago"),
        pytest.param(legacy(400, used="soon"), "leave", id="a day of use that cannot be read"),
        pytest.param(legacy(800, invalid="2025-06-01"), "leave", id="invalid for half a year"),
        pytest.param(legacy(800, invalid="2024-12-31"), "delete", id="invalid for more than a year"),
        pytest.param(legacy(800, invalid="never"), "mark", id="a mark that cannot be read"),
        pytest.param(legacy(800, used="2025-12-01", invalid="2024-12-31"), "leave", id="used again although it is marked"),
        pytest.param(legacy(800, deletion_timestamp=NOW), "leave", id="being deleted"),
    ],
)
def test_what_happens_to_a_legacy_token(secret: Secret, expected: str) -> None:
    assert decide(secret, NOW, YEAR) == expected


@pytest.mark.parametrize(
    ("since", "expected"),
    [("2024-12-31", True), ("2025-01-01", False), ("", False), ("some day", False)],
)
def test_tokens_are_left_until_their_use_was_tracked_for_the_whole_time(since: str, expected: bool) -> None:
    assert is_tracked_long_enough(since, NOW, YEAR) is expected


def test_secrets_of_a_pod() -> None:
    one = Pod.from_dict({
        "spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [{
                "name": "c",
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "env", "key": "k"}}}],
                "envFrom": [{"secretRef": {"name": "from"}}, {"configMapRef": {"name": "config"}}],
            }],
            "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "init"}}]}],
            "volumes": [
                {"name": "a", "secret": {"secretName": "volume"}},
                {"name": "b", "projected": {"sources": [{"secret": {"name": "projected"}}, {"configMap": {"name": "config"}}]}},
                {"name": "c", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi"}}},
            ],
        }
    })  # fmt: skip
    assert secrets_of(one) == {"pull", "env", "from", "init", "volume", "projected", "csi"}


def legacy_token_cleaner() -> LegacyTokenCleaner:
    """It looks every ten seconds, and tokens are old at once."""
    return LegacyTokenCleaner(period=10, unused=timedelta(0))


async def write_legacy_tokens(cluster: FakeTimeCluster) -> None:
    """Tokens that have been invalid for days, of which one is mounted by a pod and one was created by a user; and a token that is not."""
    names = ("unused", "fresh", "mounted", "manual")
    tracking = "kube-apiserver-legacy-service-account-token-tracking"
    await cluster.client.create(
        ConfigMap(metadata=ObjectMeta(name=tracking, namespace="kube-system"), data={"since": "2020-01-01"})
    )  # fmt: skip
    account = ServiceAccount(metadata=ObjectMeta(name="robot"), secrets=[ObjectReference(name=name) for name in names[:3]])
    created = await cluster.client.create(account)
    annotations = {"kubernetes.io/service-account.name": "robot", "kubernetes.io/service-account.uid": created.metadata.uid}
    for name in names:
        labels = {} if name == "fresh" else {INVALID_SINCE: "2025-12-30"}
        metadata = ObjectMeta(name=name, annotations=annotations, labels=labels)
        await cluster.client.create(Secret(metadata=metadata, type="kubernetes.io/service-account-token"))
    user = pod("p")
    user.spec.volumes = Pod.from_dict({"spec": {"volumes": [{"name": "v", "secret": {"secretName": "mounted"}}]}}).spec.volumes
    await cluster.client.create(user)
    await cluster.pass_time(30)


async def test_unused_generated_tokens_are_marked_and_later_deleted() -> None:
    async with simulation(legacy_token_cleaner()) as cluster:
        await write_legacy_tokens(cluster)
        found = {one.metadata.name: one.metadata.labels for one in await cluster.client.list(Secret, namespace="default")}
        assert found.keys() == {"fresh", "mounted", "manual"}
        assert found["fresh"] == {INVALID_SINCE: "2026-01-01"}


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(KillScenario(lambda: [BootstrapSigner()], write_tokens, [ConfigMap, Secret]), id="the signer"),
        pytest.param(KillScenario(lambda: [BootstrapTokenCleaner()], write_tokens, [Secret]), id="the cleaner of bootstrap tokens"),
        pytest.param(
            KillScenario(lambda: [legacy_token_cleaner()], write_legacy_tokens, [Secret]),
            id="the cleaner of legacy tokens",
        ),
    ],
)
async def test_survives_a_kill_after_any_write(scenario: KillScenario) -> None:
    assert await assert_survives_kills(scenario)
