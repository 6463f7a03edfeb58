"""The status of a network and its credentials: each state of pods, daemons and Secrets has one description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from examples.bitcoin_operator.controller import SECRET_MAX_AGE
from examples.bitcoin_operator.resources import SECRET_VERSION
from examples.bitcoin_operator.rpc import Credentials
from examples.bitcoin_operator.tests.scripted_daemons import CREDENTIALS, Fault
from examples.bitcoin_operator.tests.stage import NAME, STS, SVC, Stage, ip_of, network, warnings_of
from examples.bitcoin_operator.types import BitcoinNetwork
from kubeloop import ObjectMeta
from kubeloop.api.apps.v1 import StatefulSet, StatefulSetSpec
from kubeloop.api.core.v1 import Container, Event, Pod, PodSpec, PodTemplateSpec, Secret, Service, ServicePort, ServiceSpec
from kubeloop.codec import to_dict
from kubeloop.meta import Forbidden, Invalid, LabelSelector, ServiceUnavailable, Unstructured
from kubeloop.testing import eventually, on, one

pytestmark = pytest.mark.embedded

KEYS = {"BC_RPC_USER": "john", "BC_RPC_PASSWORD": "hunter2"}
JOHN = Credentials("john", "hunter2")


def entry(ordinal: int, *, ready: bool) -> dict[str, Any]:
    """Return the wire form of a status entry."""
    pod = f"{STS}-{ordinal}"
    return {"ordinal": ordinal, "ready": ready, "ip": ip_of(ordinal), "nodeName": pod, "dnsName": f"{pod}.{SVC}"}


async def test_three_pods_of_four_of_which_two_are_ready(at: Stage) -> None:
    await at.start()
    await at.client.create(network(4))
    await at.pods(3, ready=2)
    found = await at.status(lambda obj: obj.status.replicas == 3)
    await at.quiet()
    found = await at.client.get(BitcoinNetwork, NAME)
    status = to_dict(found)["status"]
    assert status["nodes"] == [entry(0, ready=True), entry(1, ready=True), entry(2, ready=False)]
    assert (status["replicas"], status["readyNodes"], status["selector"]) == (3, 2, f"app={NAME}")
    assert await at.conditions() == {
        "Ready": ("False", "NodesNotReady", "2 of 4 nodes are ready"),
        "Meshed": ("False", "NodesNotReady", "2 of 4 nodes list all others"),
        "Degraded": ("False", "AsExpected", ""),
    }


async def test_a_complete_network(at: Stage) -> None:
    await at.start()
    await at.created(3)
    assert await at.conditions() == {
        "Ready": ("True", "AllNodesReady", "3 of 3 nodes are ready"),
        "Meshed": ("True", "AllNodesConnected", "3 of 3 nodes list all others"),
        "Degraded": ("False", "AsExpected", ""),
    }


async def test_a_network_of_no_nodes_has_an_empty_list_and_zeros(at: Stage) -> None:
    await at.start()
    await at.created(0)
    status = to_dict(await at.client.get(BitcoinNetwork, NAME))["status"]
    assert (status["replicas"], status["readyNodes"], status.get("nodes", [])) == (0, 0, [])
    assert (await at.conditions())["Meshed"] == ("True", "AllNodesConnected", "0 of 0 nodes list all others")


def warming_up(at: Stage) -> None:
    at.daemons[ip_of(0)].warming_up = True


def broken(at: Stage) -> None:
    at.daemons[ip_of(0)].fault = Fault.RESET


def hanging(at: Stage) -> None:
    at.daemons[ip_of(0)].fault = Fault.HANG


def other_credentials(at: Stage) -> None:
    at.daemons[ip_of(0)].credentials = JOHN


REJECTED = "daemon 10.0.0.1 rejected the RPC credentials of user 'user': they are those of the image, because spec.secret is empty"


@pytest.mark.parametrize(
    ("fault", "meshed", "degraded"),
    [
        pytest.param(
            warming_up,
            ("False", "DaemonStarting", "2 of 3 nodes list all others; daemon 10.0.0.1 is starting"),
            ("False", "AsExpected", ""),
            id="a daemon that starts is no error",
        ),
        pytest.param(
            broken,
            ("False", "DaemonFailed", "2 of 3 nodes list all others; daemon 10.0.0.1 cannot be reached"),
            ("True", "DaemonFailed", "daemon 10.0.0.1 cannot be reached"),
            id="a daemon that cannot be reached needs a person",
        ),
        pytest.param(
            hanging,
            ("False", "Connecting", "2 of 3 nodes list all others; 1 daemons have not answered yet"),
            ("False", "AsExpected", ""),
            id="a daemon that has not answered yet",
        ),
        pytest.param(
            other_credentials,
            ("False", "CredentialsRejected", f"2 of 3 nodes list all others; {REJECTED}"),
            ("True", "CredentialsRejected", REJECTED),
            id="a daemon that rejects the credentials of the image",
        ),
    ],
)
async def test_a_daemon_that_fails_and_recovers(
    at: Stage, fault: Callable[[Stage], None], meshed: tuple[str, str, str], degraded: tuple[str, str, str]
) -> None:
    fault(at)
    await at.start()
    await at.created(3)
    conditions = await at.conditions()
    assert (conditions["Meshed"], conditions["Degraded"]) == (meshed, degraded)
    assert conditions["Ready"] == ("True", "AllNodesReady", "3 of 3 nodes are ready")
    at.daemons[ip_of(0)].credentials = CREDENTIALS
    at.daemons[ip_of(0)].recover()
    await at.meshed(3)
    at.expect_full([0, 1, 2])
    assert (await at.conditions())["Degraded"] == ("False", "AsExpected", "")


async def test_a_daemon_that_fails_for_an_hour_is_asked_about_once_a_minute_and_the_status_is_written_once(at: Stage) -> None:
    broken(at)
    await at.start()
    await at.created(2)
    await at.quiet(120)
    at.actions.clear()
    at.daemons.requests.clear()
    await at.quiet(3600)
    at.actions.expect("")
    assert 58 <= len(at.daemons.requests) <= 61
    assert {request.ip for request in at.daemons.requests} == {ip_of(0)}


# ----------------------------------------------------------------------------------------------------------- credentials


async def with_secret(at: Stage, nodes: int = 2) -> None:
    """Create a meshed network whose daemons have the credentials of the Secret."""
    await at.secret(**KEYS)
    for ordinal in range(nodes):
        at.daemons[ip_of(ordinal)].credentials = JOHN
    await at.start()
    await at.created(nodes, secret="rpc")
    await at.meshed(nodes)


async def version_of_template(at: Stage) -> str:
    return ((await at.stateful_set()).spec.template.metadata.annotations or {}).get(SECRET_VERSION, "")


async def test_daemons_with_a_secret_are_asked_with_its_credentials_and_the_template_names_its_version(at: Stage) -> None:
    await with_secret(at)
    at.expect_full([0, 1])
    assert await version_of_template(at) == (await at.client.get(Secret, "rpc")).metadata.resource_version


async def test_a_steady_network_with_a_secret_reads_it_every_30_seconds_and_does_nothing_else(at: Stage) -> None:
    await with_secret(at)
    at.cluster.faults.calls.clear()
    at.daemons.requests.clear()
    await at.quiet(10 * SECRET_MAX_AGE)
    reads = [(call.verb, call.name) for call in at.cluster.faults.calls if call.kind == "Secret"]
    assert set(reads) == {("get", "rpc")}
    assert 9 <= len(reads) <= 11
    at.actions.expect("")
    assert at.daemons.requests == []


async def test_a_rejected_password_names_the_secret_and_never_shows_the_password(at: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await at.secret(**KEYS)
    await at.start()
    await at.created(1, secret="rpc")
    text = "daemon 10.0.0.1 rejected the RPC credentials of user 'john': they are those of Secret rpc"
    conditions = await at.conditions()
    assert conditions["Degraded"] == ("True", "CredentialsRejected", text)
    assert conditions["Meshed"] == ("False", "CredentialsRejected", f"0 of 1 nodes list all others; {text}")
    assert "hunter2" not in f"{caplog.text} {await at.events()} {conditions}"


async def replace_pods(at: Stage, count: int, credentials: Credentials) -> None:
    """Replace the pods by new ones of the present template, as a StatefulSet controller does."""
    for ordinal in range(count):
        await at.client.delete(Pod, f"{STS}-{ordinal}", grace_period_seconds=0)
        at.daemons[ip_of(ordinal)].restart()
        at.daemons[ip_of(ordinal)].credentials = credentials
        await at.pod(ordinal, run="2")


async def test_a_secret_that_changes_replaces_the_pods_through_the_template(at: Stage) -> None:
    await with_secret(at)
    before = await version_of_template(at)
    await at.secret(BC_RPC_USER="john", BC_RPC_PASSWORD="correct horse")
    at.daemons.requests.clear()
    await eventually(
        one(at.client, StatefulSet, STS),
        lambda obj: (obj.spec.template.metadata.annotations or {}).get(SECRET_VERSION) != before,
        within=2 * SECRET_MAX_AGE,
    )
    await at.quiet()
    text = "0 of 2 nodes list all others; 2 still run with older credentials, until the StatefulSet replaces their pods"
    conditions = await at.conditions()
    assert conditions["Meshed"] == ("False", "CredentialsChanged", text)
    assert conditions["Degraded"] == ("False", "AsExpected", "")
    assert at.daemons.requests == []
    await replace_pods(at, 2, Credentials("john", "correct horse"))
    await at.meshed(2)
    at.expect_full([0, 1])


@pytest.mark.parametrize(
    ("secret", "credentials", "source"),
    [
        pytest.param("other", Credentials("jane", "pass"), [("other", True)], id="another Secret"),
        pytest.param("", CREDENTIALS, [], id="no Secret"),
    ],
)
async def test_another_secret_in_the_spec_changes_the_template(
    at: Stage, secret: str, credentials: Credentials, source: list[tuple[str, bool]]
) -> None:
    await with_secret(at)
    await at.secret("other", BC_RPC_USER="jane", BC_RPC_PASSWORD="pass")
    await at.client.patch(BitcoinNetwork, NAME, {"spec": {"secret": secret}})

    def changed(obj: StatefulSet) -> bool:
        env_from = obj.spec.template.spec.containers[0].env_from or []
        return [(each.secret_ref.name, each.secret_ref.optional) for each in env_from if each.secret_ref] == source

    await eventually(one(at.client, StatefulSet, STS), changed)
    assert bool(await version_of_template(at)) is bool(secret)
    await replace_pods(at, 2, credentials)
    await at.meshed(2)
    at.expect_full([0, 1])


MISSING = "Secret rpc does not exist: the daemons run with the credentials of their image"
NO_PASSWORD = "Secret rpc lacks BC_RPC_PASSWORD: the daemons run with the credentials of their image"
NO_KEYS = "Secret rpc lacks BC_RPC_USER and BC_RPC_PASSWORD: the daemons run with the credentials of their image"


@pytest.mark.parametrize(
    ("data", "reason", "text"),
    [
        pytest.param(None, "SecretNotFound", MISSING, id="a missing Secret"),
        pytest.param({"BC_RPC_USER": "john"}, "SecretIncomplete", NO_PASSWORD, id="a Secret without a password"),
        pytest.param({"BC_RPC_USER": "john", "BC_RPC_PASSWORD": ""}, "SecretIncomplete", NO_PASSWORD, id="an empty password"),
        pytest.param({}, "SecretIncomplete", NO_KEYS, id="a Secret without keys"),
    ],
)
async def test_without_usable_credentials_the_daemons_have_those_of_their_image(
    at: Stage, data: dict[str, str] | None, reason: str, text: str
) -> None:
    if data is not None:
        await at.secret(**data)
    await at.start()
    await at.created(2, secret="rpc")
    await at.meshed(2)
    assert (await at.conditions())["Degraded"] == ("True", reason, text)
    await at.quiet(5 * SECRET_MAX_AGE)
    assert await warnings_of(at) == [(reason, text)]
    assert [each.count async for each in at.client.list(Event) if each.type == "Warning"] == [1]
    await at.secret(**KEYS)
    await at.quiet(2 * SECRET_MAX_AGE)
    await replace_pods(at, 2, JOHN)
    await at.meshed(2)
    assert (await at.conditions())["Degraded"] == ("False", "AsExpected", "")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"BC_RPC_PASSWORD": "secret\n"}, id="a line break at the end of the password"),
        pytest.param({"BC_RPC_PASSWORD": "a\nrpcallowip=0.0.0.0/0"}, id="a second line"),
        pytest.param({"BC_RPC_USER": "jo:hn"}, id="a colon in the user"),
    ],
)
async def test_credentials_that_no_configuration_can_hold_are_reported(at: Stage, data: dict[str, str]) -> None:
    await at.secret(**{**KEYS, **data})
    await at.start()
    await at.created(1, secret="rpc")
    assert (await at.conditions())["Degraded"][:2] == ("True", "SecretInvalid")


@pytest.mark.parametrize("error", [Forbidden, ServiceUnavailable])
async def test_a_network_whose_secret_becomes_unreadable_follows_its_pods(at: Stage, error: type[Forbidden | ServiceUnavailable]) -> None:
    await at.secret(**KEYS)
    await at.start()
    await at.created(2, secret="rpc")
    await replace_pods(at, 2, JOHN)
    await at.meshed(2)
    at.cluster.faults.refuse(error, times=1000, matching=on("get", Secret))
    await at.quiet(2 * SECRET_MAX_AGE)
    assert (await at.conditions())["Degraded"][:2] == ("True", "SecretError")
    await at.client.delete(Pod, f"{STS}-1", grace_period_seconds=0)
    found = await at.status(lambda network: network.status.ready_nodes == 1)
    assert [node.node_name for node in found.status.nodes] == [f"{STS}-0"]
    await at.quiet(1)
    assert at.daemons[ip_of(0)].added == []


async def test_credentials_that_are_no_text_are_reported(at: Stage) -> None:
    await at.client.create(Secret(metadata=ObjectMeta(name="rpc"), data={"BC_RPC_USER": b"\xff", "BC_RPC_PASSWORD": b"x"}))
    await at.start()
    await at.created(1, secret="rpc")
    text = "Secret rpc: BC_RPC_USER and BC_RPC_PASSWORD must be UTF-8 text"
    assert (await at.conditions())["Degraded"] == ("True", "SecretInvalid", text)


@pytest.mark.parametrize("error", [Forbidden, ServiceUnavailable])
async def test_a_secret_that_cannot_be_read_stops_everything_until_it_can(at: Stage, error: type[Forbidden | ServiceUnavailable]) -> None:
    await at.secret(**KEYS)
    for ordinal in range(2):
        at.daemons[ip_of(ordinal)].credentials = JOHN
    at.cluster.faults.refuse(error, times=12, matching=on("get", Secret))
    await at.start()
    await at.client.create(network(2, secret="rpc"))
    await at.quiet(1)
    at.actions.expect("patch BitcoinNetwork/status default/net")
    assert at.daemons.requests == []
    assert {reason for reason, _ in await warnings_of(at)} == {"SecretError"}
    assert (await at.conditions())["Degraded"][:2] == ("True", "SecretError")
    await eventually(one(at.client, StatefulSet, STS), lambda _: True, within=60)
    await at.pods(2)
    await at.meshed(2)


# -------------------------------------------------------------------------------------------------- objects of other owners


async def foreign_stateful_set(at: Stage) -> StatefulSet:
    labels = {"app": "theirs"}
    template = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[Container(name="c", image="theirs:1")]))
    spec = StatefulSetSpec(replicas=7, service_name="theirs", selector=LabelSelector(match_labels=labels), template=template)
    return await at.client.create(StatefulSet(metadata=ObjectMeta(name=STS), spec=spec))


async def foreign_service(at: Stage) -> Service:
    return await at.client.create(Service(metadata=ObjectMeta(name=SVC), spec=ServiceSpec(ports=[ServicePort(port=80)])))


@pytest.mark.parametrize(
    ("create", "text"),
    [
        pytest.param(foreign_stateful_set, f"Could not create stateful set {STS}, error is ", id="a StatefulSet"),
        pytest.param(foreign_service, f"Could not create service {SVC}, error is ", id="a Service"),
    ],
)
async def test_an_object_of_another_owner_is_refused_until_it_is_gone(
    at: Stage, create: Callable[[Stage], Awaitable[StatefulSet | Service]], text: str
) -> None:
    theirs = await create(at)
    await at.start()
    await at.client.create(network(2))
    await at.quiet(60)
    assert to_dict(await at.client.get(type(theirs), theirs.metadata.name)) == to_dict(theirs)
    status, reason, message = (await at.conditions())["Degraded"]
    assert (status, reason) == ("True", "ChildFailed")
    assert theirs.metadata.name in message
    (warning,) = await warnings_of(at)
    assert (warning[0], warning[1][: len(text)]) == ("CreationError", text)
    await at.client.delete(theirs)
    await eventually(one(at.client, StatefulSet, STS), {"spec": {"replicas": 2}}, within=3600)
    await eventually(one(at.client, Service, SVC), {"spec": {"clusterIP": "None"}}, within=3600)
    await at.status(lambda obj: [each.status for each in obj.status.conditions if each.type == "Degraded"] == ["False"])


async def test_pods_of_a_foreign_stateful_set_are_no_nodes(at: Stage) -> None:
    await foreign_stateful_set(at)
    await at.start()
    await at.client.create(network(1))
    await at.pod(0)
    await at.quiet(60)
    assert to_dict(await at.client.get(BitcoinNetwork, NAME))["status"].get("nodes", []) == []
    assert at.daemons.requests == []


# ----------------------------------------------------------------------------------------------------- the definition itself


def manifest(name: str = NAME, **spec: object) -> Unstructured:
    kind = {"apiVersion": "bitcoincontroller.christianb93.github.com/v1", "kind": "BitcoinNetwork"}
    return Unstructured.from_dict({**kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec})


@pytest.mark.parametrize(
    ("document", "text"),
    [
        pytest.param(manifest(nodes=-1), "spec.nodes", id="negative nodes"),
        pytest.param(manifest(nodes=1, secret="../configmaps/x"), "spec.secret", id="a path as the name of the Secret"),
        pytest.param(manifest(nodes=1, secret="x\n"), "spec.secret", id="a line break in the name of the Secret"),
        pytest.param(manifest(nodes=101), "spec.nodes", id="more than 100 nodes"),
        pytest.param(manifest(nodes="3"), "spec.nodes", id="nodes as a text"),
        pytest.param(manifest(), "spec.nodes", id="no nodes"),
        pytest.param(manifest("n" * 49, nodes=1), "at most 48", id="a name of 49 letters"),
        pytest.param(manifest("1net", nodes=1), "begin with a letter", id="a name that begins with a digit"),
        pytest.param(manifest("my.net", nodes=1), "letters, digits and hyphens", id="a name with a dot"),
    ],
)
async def test_the_definition_refuses(at: Stage, document: Unstructured, text: str) -> None:
    with pytest.raises(Invalid, match=text):
        await at.client.create(document)


async def test_the_definition_accepts_the_longest_name(at: Stage) -> None:
    await at.client.create(manifest("n" * 48, nodes=100))
