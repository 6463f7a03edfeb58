"""A candidate of coordinated election (KEP-4355): tells the server that it stands, and answers when the server asks whether it still does.

The server chooses the holder among candidates by their versions; the elector (``coordinated=True``) then renews. Source: client-go
tools/leaderelection/leasecandidate.go; behaviour I130.
"""

from __future__ import annotations

from kubeloop.api.coordination.v1beta1 import LeaseCandidate as CandidateObject
from kubeloop.api.coordination.v1beta1 import LeaseCandidateSpec
from kubeloop.client import Client
from kubeloop.controller.election.config import LeaseConfig
from kubeloop.meta import AlreadyExists, Conflict, KubeloopError, NotFound, ObjectMeta, UnknownKind, Unstructured
from kubeloop.timing import Clock
from kubeloop.transport import logger_with_context

log = logger_with_context("kubeloop.controller.election")

#: Seconds between renewals that nobody asked for (client-go's requeueInterval), and between looks for a question.
RENEWAL = 300.0
LOOK = 2.0

# The class knows its own path; only discovery knows whether anything is there.
_ASKED = Unstructured.of("coordination.k8s.io/v1beta1", "LeaseCandidate")


class LeaseCandidate:
    """Stands for the Lease of ``config``, with these versions of the program; of several, ``OldestEmulationVersion`` takes the oldest.

    Guarantees
        A question of the server (``spec.pingTime`` later than ``spec.renewTime``) is answered by renewing at the next look, within
        ``look`` seconds. Without questions it renews every five minutes.

    Run it beside an elector with ``LeaseConfig(..., coordinated=True)``, until cancelled. The object stays, as client-go's does: the server
    deletes candidates that no longer renew.
    """

    def __init__(
        self,
        client: Client,
        config: LeaseConfig,
        *,
        binary_version: str,
        emulation_version: str = "",
        strategy: str = "OldestEmulationVersion",
        look: float = LOOK,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._config = config
        self._spec = LeaseCandidateSpec(
            lease_name=config.name, binary_version=binary_version, emulation_version=emulation_version or binary_version, strategy=strategy
        )
        self._look = look
        self._clock = clock or client.clock

    async def run(self) -> None:
        """Until cancelled.

        Raises:
            UnknownKind: the server has no LeaseCandidates; coordinated election is not possible there.
        """
        renewed: float | None = None
        looked = False
        while True:
            try:
                if not looked:
                    await self._client.mapping(_ASKED)
                    looked = True
                if await self._ensure(due=renewed is None or self._clock.now() - renewed >= RENEWAL):
                    renewed = self._clock.now()
            except UnknownKind as error:
                raise UnknownKind(
                    f"coordinated election is not served here: {error}; leave out coordinated=True, or turn on the feature gate "
                    "CoordinatedLeaderElection and --runtime-config=coordination.k8s.io/v1beta1=true of the API server"
                ) from error
            except (AlreadyExists, Conflict) as error:
                log.debug("candidate %s: %s", self._config.identity, error)
            except KubeloopError as error:
                log.warning("candidate %s for %s could not be renewed: %s", self._config.identity, self._config, error)
            await self._clock.sleep(self._look)

    async def _ensure(self, *, due: bool) -> bool:
        """Whether it was written."""
        now, namespace = self._clock.wall(), self._config.namespace
        try:
            found = await self._client.get(CandidateObject, self._config.identity, namespace=namespace)
        except NotFound:
            spec = self._spec
            spec.renew_time = now
            await self._client.create(CandidateObject(metadata=ObjectMeta(name=self._config.identity, namespace=namespace), spec=spec))
            return True
        asked = found.spec.ping_time
        if not due and (asked is None or (found.spec.renew_time is not None and asked <= found.spec.renew_time)):
            return False
        found.spec.renew_time = now
        await self._client.update(found)
        return True
