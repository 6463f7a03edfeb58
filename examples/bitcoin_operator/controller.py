"""The controller: a Service, a StatefulSet and a mesh of daemons for each BitcoinNetwork, and its status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from examples.bitcoin_operator.mesh import Daemon, Mesh, MeshState
from examples.bitcoin_operator.resources import (
    SECRET_VERSION,
    is_ready,
    node_of,
    service_name,
    service_of,
    stateful_set_name,
    stateful_set_of,
)
from examples.bitcoin_operator.rpc import Credentials, CredentialsRejected, RpcClient, WarmingUp
from examples.bitcoin_operator.types import BitcoinNetwork, BitcoinNetworkSpec
from kubeloop import Result
from kubeloop.api.apps.v1 import StatefulSet
from kubeloop.api.core.v1 import Event, Pod, Secret, Service
from kubeloop.cache import Head
from kubeloop.codec import decode, encode
from kubeloop.controller import (
    ChildOutcome,
    Children,
    ChildrenReport,
    ForeignChild,
    KeyController,
    StatusWriter,
    WatchedKind,
    controller_of,
    is_controlled_by,
    set_condition,
)
from kubeloop.meta import ApiError, NotFound, ObjectKey, ObjectMeta
from kubeloop.tasks import close_all

#: Credentials of the image, for networks without a Secret.
DEFAULT_CREDENTIALS = Credentials("user", "password")
USER_KEY, PASSWORD_KEY = "BC_RPC_USER", "BC_RPC_PASSWORD"

#: Seconds for which a Secret that was read is used: the role allows to get Secrets, not to watch them.
SECRET_MAX_AGE = 30.0
#: Seconds without a change after which a network is reconciled: its pods change several times in quick succession when they start.
DEBOUNCE = 0.1
#: Seconds for which children of a deleted network of the same name are no error: the garbage collector deletes them.
DELETION_WAIT = 30.0
#: Seconds that a reconcile waits for the daemons. Later answers lead to the next reconcile.
DAEMON_WAIT = 0.1


@dataclass(frozen=True)
class _ReadSecret:
    """The credentials of a network. ``problem`` says why they are not those of the Secret; ``reason`` is that of the condition."""

    credentials: Credentials
    version: str
    read_at: float
    name: str = ""
    reason: str = ""
    problem: str = ""


class BitcoinNetworkController(
    KeyController[BitcoinNetwork],
    owns=[Service, StatefulSet],
    watches=[WatchedKind(Pod, to="network_of")],
    gets=[Secret],
    # It writes the status of networks, and applies children. The garbage collector deletes them.
    write_verbs={BitcoinNetwork: [], Service: ["create", "patch"], StatefulSet: ["create", "patch"]},
    workers=5,
    debounce=DEBOUNCE,
    name="bitcoin-controller",
):
    """Creates the Service and the StatefulSet of each BitcoinNetwork, connects its daemons, and writes its status.

    It is level-based: each reconcile compares the objects and the daemons with the desired state, and a network in that state causes
    neither a write nor a request to a daemon. Once in 30 seconds it reads the Secret of each network that has one.

    Args:
        rpc: Client for the daemons; the controller opens and closes it.
        wait: Seconds that a reconcile waits for the daemons.
    """

    def __init__(self, rpc: RpcClient | None = None, *, wait: float = DAEMON_WAIT) -> None:
        self._rpc = rpc or RpcClient()
        self._wait = wait
        self._meshes: dict[ObjectKey, Mesh] = {}
        self._secrets: dict[ObjectKey, _ReadSecret] = {}
        #: Uid of each network that waits for the deletion of older children, and since when.
        self._deletion_waits: dict[ObjectKey, tuple[str, float]] = {}
        #: State of the children when the last apply had written or compared them.
        self._applied: dict[ObjectKey, tuple[object, ...]] = {}
        # One object for all reconciles: it remembers how the server stores a child, and sends no write for defaults that the server added.
        self._children = Children(self)

    async def start(self) -> None:
        await self._examine_kinds()
        await self._rpc.__aenter__()

    async def stop(self) -> None:
        meshes = list(self._meshes.values())
        self._meshes.clear()
        await close_all(*[mesh.close for mesh in meshes], lambda: self._rpc.__aexit__(None, None, None))

    async def _examine_kinds(self) -> None:
        """Decode, compare and encode an example of each kind: the first use takes tens of milliseconds, which the first network saves."""
        example = BitcoinNetwork(metadata=ObjectMeta(name="x", namespace="x", uid="x"), spec=BitcoinNetworkSpec(nodes=1, secret="x"))
        await self._children.prepare(example, [service_of(example), stateful_set_of(example, "")])
        self._set_nodes(example, {0: decode(Pod, encode(Pod(metadata=ObjectMeta(name="x"))))})
        # Without a change of the status nothing is sent.
        await StatusWriter(self.client).write(decode(BitcoinNetwork, encode(example)))
        encode(Event(metadata=ObjectMeta(name="x")))

    def network_of(self, pod: Head) -> list[ObjectKey]:
        """Return the network of a pod: the owner of its StatefulSet."""
        owner = pod.controller
        if owner is None or owner.kind != "StatefulSet" or not owner.name.endswith("-sts"):
            return []
        key = ObjectKey("", pod.namespace, owner.name.removesuffix("-sts"))
        return [key] if self.lister(BitcoinNetwork).head(key.name, key.namespace) is not None else []

    async def reconcile(self, key: ObjectKey) -> Result | None:
        network = self.lister(BitcoinNetwork).get(key.name, key.namespace)
        if network is None or network.metadata.deletion_timestamp is not None:
            # The garbage collector deletes the Service and the StatefulSet: they have owner references.
            await self._forget(key)
            return None
        try:
            secret = await self._secret_of(key, network)
        except (ApiError, ValueError) as error:
            pods, reason = self._pods(network), ("SecretError", _unreadable(network.spec.secret, error))
            self._set_nodes(network, pods)
            self._condition(network, "Meshed", False, *reason)
            self._condition(network, "Degraded", True, *reason)
            await StatusWriter(self.client).write(network)
            raise
        report, deleting = await self._apply(key, network, secret)
        pods = self._pods(network)
        mesh = await self._connect_daemons(key, pods, secret)
        self._set_status(network, pods, mesh, secret, report, deleting)
        try:
            await StatusWriter(self.client).write(network)
        except NotFound:
            return None  # The network was deleted meanwhile. Its deletion leads to the next reconcile.
        waits = [mesh.retry_after] if mesh.retry_after is not None else []
        if deleting and key in self._deletion_waits:
            # The deletion leads to a reconcile; this one is for children that stay.
            waits.append(max(0.0, self._deletion_waits[key][1] + DELETION_WAIT - self.clock.now()))
        if network.spec.secret:
            waits.append(max(0.0, secret.read_at + SECRET_MAX_AGE - self.clock.now()))
        if report.failed and waits:
            # The back-off after a child's failure is for the child: daemons and Secret have their delays.
            self.enqueue(key, max(0.01, min(waits)))
        report.raise_failures()
        return Result(requeue_after=max(0.01, min(waits))) if waits else None

    async def _forget(self, key: ObjectKey) -> None:
        self._secrets.pop(key, None)
        self._applied.pop(key, None)
        self._deletion_waits.pop(key, None)
        mesh = self._meshes.pop(key, None)
        if mesh is not None:
            await mesh.close()

    # ------------------------------------------------------------------------------------------------------- children

    async def _apply(self, key: ObjectKey, network: BitcoinNetwork, secret: _ReadSecret) -> tuple[ChildrenReport, list[ChildOutcome]]:
        """Create or repair the Service and the StatefulSet, and record the Events.

        Returns:
            The results; and those of children whose names are taken by objects that are being deleted, which are not among the others.
        """
        name, namespace = network.metadata.name, network.metadata.namespace
        service = self.lister(Service).get(service_name(network), namespace)
        before = self.lister(StatefulSet).get(stateful_set_name(network), namespace)
        if service is not None and before is not None and self._applied.get(key) == _children_state(network, secret, service, before):
            # Most reconciles follow a change of a pod: the comparison of whole objects would take most of their time.
            return ChildrenReport(()), []
        desired = [service_of(network), stateful_set_of(network, secret.version)]
        report = await self._children.apply(network, desired, prune=False, check=False)
        deleting = self._waiting_for_deletion(key, network, report)
        report = replace(report, outcomes=tuple(outcome for outcome in report if outcome not in deleting))
        for created in report.created:
            what = "headless service" if created.kind is Service else "stateful set"
            self.events.normal(network, "Info", f"Created {what} for bitcoin network {name}")
        for updated in report.updated:
            if updated.kind is StatefulSet and before is not None and before.spec.replicas != network.spec.nodes:
                self.events.normal(network, "Info", f"Adjusting number of replicas to {network.spec.nodes}")
        for failed in report.failed:
            what = "service" if failed.kind is Service else "stateful set"
            self.events.warning(network, "CreationError", f"Could not create {what} {failed.name}, error is {failed.error}")
        match report.objects:
            case [Service() as service, StatefulSet() as stateful_set]:
                # The states that were compared or written: a change that arrived meanwhile leads to the next comparison.
                self._applied[key] = _children_state(network, secret, service, stateful_set)
        return report, deleting

    def _waiting_for_deletion(self, key: ObjectKey, network: BitcoinNetwork, report: ChildrenReport) -> list[ChildOutcome]:
        """Return the results of children whose names are taken by objects that are being deleted, or will be within ``DELETION_WAIT``."""
        deleting = [outcome for outcome in report if outcome.did == "deleting"]
        left_over = [outcome for outcome in report if self._is_left_over(network, outcome)]
        if not left_over:
            self._deletion_waits.pop(key, None)
            return deleting
        uid, since = self._deletion_waits.get(key, ("", 0.0))
        if uid != network.metadata.uid:
            since = self.clock.now()
            self._deletion_waits[key] = network.metadata.uid, since
        return deleting if self.clock.now() - since >= DELETION_WAIT else deleting + left_over

    def _is_left_over(self, network: BitcoinNetwork, outcome: ChildOutcome) -> bool:
        """Return whether a child failed because of an object that is being deleted, or that a deleted network of the same name controls."""
        if not isinstance(outcome.error, ForeignChild):
            return False
        live = self.lister(outcome.kind).get(outcome.name, outcome.namespace)
        if live is None or live.metadata.deletion_timestamp is not None:
            return True
        owner = controller_of(live)
        return (
            owner is not None
            and (owner.api_version, owner.kind, owner.name) == (network.api_version, network.kind, network.metadata.name)
            and owner.uid != network.metadata.uid
        )

    def _pods(self, network: BitcoinNetwork) -> dict[int, Pod]:
        """Return the network's pods by ordinal, below ``spec.nodes``: the others are being deleted."""
        stateful_set = self.lister(StatefulSet).get(stateful_set_name(network), network.metadata.namespace)
        if stateful_set is None or not is_controlled_by(stateful_set, network):
            return {}
        pods = self.lister(Pod)
        found = {}
        for ordinal in range(network.spec.nodes):
            pod = pods.get(f"{stateful_set.metadata.name}-{ordinal}", network.metadata.namespace)
            if pod is not None and is_controlled_by(pod, stateful_set):
                found[ordinal] = pod
        return found

    # ---------------------------------------------------------------------------------------------------- credentials

    async def _secret_of(self, key: ObjectKey, network: BitcoinNetwork) -> _ReadSecret:
        """Return the credentials. They are read again when they are older than ``SECRET_MAX_AGE``.

        Raises:
            ApiError, ValueError: The Secret was never read, and the server refused to show it, or failed; or its name is not valid.
        """
        name, now = network.spec.secret, self.clock.now()
        if not name:
            return _ReadSecret(DEFAULT_CREDENTIALS, "", now)
        known = self._secrets.get(key)
        if known is not None and known.name == name and now - known.read_at < SECRET_MAX_AGE:
            return known
        try:
            found = _read(await self.client.get(Secret, name, namespace=network.metadata.namespace), now)
        except NotFound:
            problem = f"Secret {name} does not exist: the daemons run with the credentials of their image"
            found = _ReadSecret(DEFAULT_CREDENTIALS, "none", now, name, "SecretNotFound", problem)
        except (ApiError, ValueError) as error:
            self.events.warning(network, "SecretError", f"Could not read secret {name}, error is {error}")
            if known is None or known.name != name:
                # Without the Secret it is unknown which credentials the daemons have. The default ones would be a guess.
                raise
            # Pods come and go meanwhile: the last credentials serve until the Secret can be read again.
            found = replace(known, read_at=now, reason="SecretError", problem=_unreadable(name, error))
            self._secrets[key] = found
            return found
        if found.problem and (known is None or known.problem != found.problem):
            self.events.warning(network, found.reason, found.problem)
        self._secrets[key] = found
        return found

    # ----------------------------------------------------------------------------------------------------------- mesh

    async def _connect_daemons(self, key: ObjectKey, pods: dict[int, Pod], secret: _ReadSecret) -> MeshState:
        """Connect the ready daemons. Daemons that were started with other credentials wait until the StatefulSet replaces their pods."""
        mesh = self._meshes.get(key)
        if mesh is None:
            mesh = self._meshes[key] = Mesh(self._rpc, self.clock.now, lambda: self.enqueue(key))
        ready = [_daemon(pod) for pod in pods.values() if is_ready(pod)]
        reachable = [daemon for daemon in ready if daemon.secret_version == secret.version]
        return await mesh.round(ready, reachable, secret.credentials, wait=self._wait)

    # --------------------------------------------------------------------------------------------------------- status

    def _set_status(
        self,
        network: BitcoinNetwork,
        pods: dict[int, Pod],
        mesh: MeshState,
        secret: _ReadSecret,
        report: ChildrenReport,
        deleting: Sequence[ChildOutcome],
    ) -> None:
        self._set_nodes(network, pods)
        daemons = [_daemon(pod) for pod in pods.values() if is_ready(pod)]
        self._condition(network, "Meshed", *_meshed(daemons, network.spec.nodes, mesh, secret))
        self._condition(network, "Degraded", *_degraded(mesh, secret, report, deleting))

    def _set_nodes(self, network: BitcoinNetwork, pods: dict[int, Pod]) -> None:
        """Set the nodes, their numbers, and the condition Ready."""
        status, desired = network.status, network.spec.nodes
        status.nodes = [node_of(network, ordinal, pod) for ordinal, pod in sorted(pods.items())]
        status.replicas, status.ready_nodes = len(status.nodes), sum(node.ready for node in status.nodes)
        status.selector = f"app={network.metadata.name}"
        ready = status.ready_nodes == desired
        reasons = ("AllNodesReady" if ready else "NodesNotReady", f"{status.ready_nodes} of {desired} nodes are ready")
        self._condition(network, "Ready", ready, *reasons)

    def _condition(self, network: BitcoinNetwork, kind: str, value: bool, reason: str, message: str) -> None:
        set_condition(network, kind, value, reason=reason, message=message, now=self.clock.wall())


def _children_state(network: BitcoinNetwork, secret: _ReadSecret, service: Service, stateful_set: StatefulSet) -> tuple[object, ...]:
    """Return the parts of network, Service and StatefulSet that decide whether the children need a write.

    The generation of a StatefulSet changes with its spec, not with its status. Services have none.
    """
    versions = network.metadata.uid, network.metadata.generation, secret.version, service.metadata.uid, service.metadata.resource_version
    metadata = stateful_set.metadata
    return *versions, metadata.uid, metadata.generation, metadata.labels, metadata.owner_references, metadata.deletion_timestamp


def _read(secret: Secret, now: float) -> _ReadSecret:
    """Return the credentials in a Secret, or those of the image if a key is missing, as the daemons do."""
    name, version = secret.metadata.name, secret.metadata.resource_version
    missing = [key for key in (USER_KEY, PASSWORD_KEY) if not secret.data.get(key)]
    if missing:
        problem = f"Secret {name} lacks {' and '.join(missing)}: the daemons run with the credentials of their image"
        return _ReadSecret(DEFAULT_CREDENTIALS, version, now, name, "SecretIncomplete", problem)
    try:
        user, password = (bytes(secret.data[key]).decode() for key in (USER_KEY, PASSWORD_KEY))
    except UnicodeDecodeError:
        problem = f"Secret {name}: {USER_KEY} and {PASSWORD_KEY} must be UTF-8 text"
        return _ReadSecret(DEFAULT_CREDENTIALS, version, now, name, "SecretInvalid", problem)
    credentials = Credentials(user, password)
    if any(value != value.strip() or not value.isprintable() for value in (user, password)) or ":" in user:
        problem = (
            f"Secret {name}: {USER_KEY} and {PASSWORD_KEY} must be one line without white space at its ends, and the user without a colon"
        )
        return _ReadSecret(credentials, version, now, name, "SecretInvalid", problem)
    return _ReadSecret(credentials, version, now, name)


def _unreadable(name: str, error: Exception) -> str:
    return f"Secret {name} cannot be read: {error}"


def _daemon(pod: Pod) -> Daemon:
    statuses = pod.status.container_statuses or []
    # The container's id changes with each restart; without one, the number of restarts does.
    run = ",".join(status.container_id or str(status.restart_count) for status in statuses)
    return Daemon(pod.status.pod_ip or "", f"{pod.metadata.uid}/{run}", (pod.metadata.annotations or {}).get(SECRET_VERSION, ""))


def _meshed(daemons: Sequence[Daemon], desired: int, mesh: MeshState, secret: _ReadSecret) -> tuple[bool, str, str]:
    """Return status, reason and message of the condition Meshed."""
    count = sum(daemon in mesh.connected for daemon in daemons)
    if count == desired:
        return True, "AllNodesConnected", f"{count} of {desired} nodes list all others"
    text = f"{count} of {desired} nodes list all others"
    outdated = sum(daemon.secret_version != secret.version for daemon in daemons)
    if outdated:
        return (
            False,
            "CredentialsChanged",
            f"{text}; {outdated} still run with older credentials, until the StatefulSet replaces their pods",
        )
    if mesh.failures:
        error = next(iter(mesh.failures.values()))
        reason = {WarmingUp: "DaemonStarting", CredentialsRejected: "CredentialsRejected"}.get(type(error), "DaemonFailed")
        return False, reason, f"{text}; {_explained(error, secret)}"
    if mesh.running:
        return False, "Connecting", f"{text}; {len(mesh.running)} daemons have not answered yet"
    return False, "NodesNotReady", text


def _degraded(mesh: MeshState, secret: _ReadSecret, report: ChildrenReport, deleting: Sequence[ChildOutcome]) -> tuple[bool, str, str]:
    """Return status, reason and message of the condition Degraded: an error that needs a person."""
    for failed in report.failed:
        return True, "ChildFailed", f"{failed.kind.kind} {failed.name}: {failed.error}"
    if secret.problem:
        return True, secret.reason, secret.problem
    for error in mesh.failures.values():
        if isinstance(error, CredentialsRejected):
            return True, "CredentialsRejected", _explained(error, secret)
        if not isinstance(error, WarmingUp):
            return True, "DaemonFailed", str(error)
    for child in deleting:
        return False, "WaitingForDeletion", f"{child.kind.kind} {child.name} is created when the present one is deleted"
    return False, "AsExpected", ""


def _explained(error: Exception, secret: _ReadSecret) -> str:
    if not isinstance(error, CredentialsRejected):
        return str(error)
    source = f"of Secret {secret.name}" if secret.name else "of the image, because spec.secret is empty"
    return f"{error}: they are those {source}"
