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
from kubeloop.codec import decode
from kubeloop.controller import Children, ChildrenReport, KeyController, StatusWriter, WatchedKind, is_controlled_by, set_condition
from kubeloop.meta import ApiError, NotFound, ObjectKey, ObjectMeta

#: Credentials of the image, for networks without a Secret.
DEFAULT_CREDENTIALS = Credentials("user", "password")
USER_KEY, PASSWORD_KEY = "BC_RPC_USER", "BC_RPC_PASSWORD"

#: Seconds for which a Secret that was read is used: the role allows to get Secrets, not to watch them.
SECRET_MAX_AGE = 30.0
#: Seconds without a change after which a network is reconciled: its pods change several times in quick succession when they start.
DEBOUNCE = 0.05
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
        #: State of the children before the last apply that found nothing to write.
        self._applied: dict[ObjectKey, tuple[object, ...]] = {}
        # One object for all reconciles: it remembers how the server stores a child, and sends no write for defaults that the server added.
        self._children = Children(self)

    async def start(self) -> None:
        # The first use of a kind examines its classes, which takes tens of milliseconds: the first network need not wait for it.
        example = BitcoinNetwork(metadata=ObjectMeta(name="x", namespace="x", uid="x"), spec=BitcoinNetworkSpec(nodes=1, secret="x"))
        await Children(self).plan(example, [service_of(example), stateful_set_of(example, "")])
        for kind in (BitcoinNetwork, Pod, StatefulSet, Service, Event):
            decode(kind, b'{"spec": {"nodes": 1}}')
        await self._rpc.__aenter__()

    async def stop(self) -> None:
        try:
            for mesh in self._meshes.values():
                await mesh.close()
        finally:
            self._meshes.clear()
            await self._rpc.__aexit__(None, None, None)

    def network_of(self, pod: Head) -> list[ObjectKey]:
        """Return the network of a pod: the owner of its StatefulSet."""
        owner = pod.controller
        if owner is None or owner.kind != "StatefulSet" or not owner.name.endswith("-sts"):
            return []
        key = ObjectKey("", pod.namespace, owner.name.removesuffix("-sts"))
        return [key] if self.lister(BitcoinNetwork).get(key.name, key.namespace) is not None else []

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
        report = await self._apply(network, secret)
        pods = self._pods(network)
        mesh = await self._connect_daemons(key, pods, secret)
        self._set_status(network, pods, mesh, secret, report)
        try:
            await StatusWriter(self.client).write(network)
        except NotFound:
            return None  # The network was deleted meanwhile. Its deletion leads to the next reconcile.
        waits = [mesh.retry_after] if mesh.retry_after is not None else []
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
        mesh = self._meshes.pop(key, None)
        if mesh is not None:
            await mesh.close()

    # ------------------------------------------------------------------------------------------------------- children

    async def _apply(self, network: BitcoinNetwork, secret: _ReadSecret) -> ChildrenReport:
        """Create or repair the Service and the StatefulSet, and record the Events."""
        name, namespace = network.metadata.name, network.metadata.namespace
        key = network.object_key()
        before = self.lister(StatefulSet).get(stateful_set_name(network), namespace)
        applied = self._children_state(network, secret)
        if applied is not None and self._applied.get(key) == applied:
            # Most reconciles follow a change of a pod: the comparison of whole objects would take most of their time.
            return ChildrenReport(())
        report = await self._children.apply(network, [service_of(network), stateful_set_of(network, secret.version)], check=False)
        for created in report.created:
            what = "headless service" if created.kind is Service else "stateful set"
            self.events.normal(network, "Info", f"Created {what} for bitcoin network {name}")
        for updated in report.updated:
            if updated.kind is StatefulSet and before is not None and before.spec.replicas != network.spec.nodes:
                self.events.normal(network, "Info", f"Adjusting number of replicas to {network.spec.nodes}")
        for failed in report.failed:
            what = "service" if failed.kind is Service else "stateful set"
            self.events.warning(network, "CreationError", f"Could not create {what} {failed.name}, error is {failed.error}")
        if applied is not None and not (report.failed or report.created or report.updated):
            # The state before the comparison: a change that arrived meanwhile leads to the next one.
            self._applied[key] = applied
        return report

    def _children_state(self, network: BitcoinNetwork, secret: _ReadSecret) -> tuple[object, ...] | None:
        """Return the parts of network, Service and StatefulSet that decide whether the children need a write; None if one is missing.

        The generation of a StatefulSet changes with its spec, not with its status. Services have none.
        """
        namespace = network.metadata.namespace
        stateful_set = self.lister(StatefulSet).get(stateful_set_name(network), namespace)
        service = self.lister(Service).get(service_name(network), namespace)
        if stateful_set is None or service is None:
            return None
        versions = (
            network.metadata.uid,
            network.metadata.generation,
            secret.version,
            service.metadata.uid,
            service.metadata.resource_version,
        )
        metadata = stateful_set.metadata
        return *versions, metadata.uid, metadata.generation, metadata.labels, metadata.owner_references, metadata.deletion_timestamp

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
        self, network: BitcoinNetwork, pods: dict[int, Pod], mesh: MeshState, secret: _ReadSecret, report: ChildrenReport
    ) -> None:
        self._set_nodes(network, pods)
        daemons = [_daemon(pod) for pod in pods.values() if is_ready(pod)]
        self._condition(network, "Meshed", *_meshed(daemons, network.spec.nodes, mesh, secret))
        self._condition(network, "Degraded", *_degraded(mesh, secret, report))

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


def _degraded(mesh: MeshState, secret: _ReadSecret, report: ChildrenReport) -> tuple[bool, str, str]:
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
    return False, "AsExpected", ""


def _explained(error: Exception, secret: _ReadSecret) -> str:
    if not isinstance(error, CredentialsRejected):
        return str(error)
    source = f"of Secret {secret.name}" if secret.name else "of the image, because spec.secret is empty"
    return f"{error}: they are those {source}"
