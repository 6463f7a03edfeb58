"""A certificate of the manager's own for its metrics and debug endpoints, kept in memory only; files are ``CertificateFiles``'s."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from kubeloop.client import Client
from kubeloop.controller.webhooks.certificates.rotation import Kept, Lifetimes, next_due, renewed
from kubeloop.controller.webhooks.tls import Serving
from kubeloop.timing import Clock, SystemClock

#: Seconds at least between two renewals, should a clock jump.
_LEAST = 60.0


class OwnCertificate:
    """Made when it is first needed, signed by an authority made with it, renewed when a third of its life is left.

    Clients cannot verify it: it encrypts, but does not authenticate the server (controller-runtime's default for metrics).
    ``names``: DNS names and addresses to serve under.
    """

    def __init__(self, names: Sequence[str] = ("localhost", "127.0.0.1"), *, lifetime: timedelta = timedelta(days=90)) -> None:
        self._names = tuple(names)
        self._lifetimes = Lifetimes(serving=lifetime, authority=lifetime * 8, overlap=timedelta())
        self._clock: Clock = SystemClock()
        self._kept: Kept | None = None

    async def open(self, client: Client | None, clock: Clock) -> Serving:  # noqa: ARG002 - nothing of it is kept in a cluster
        self._clock = clock
        if self._kept is None:
            self._kept = renewed(None, self._names, self._lifetimes, clock.wall())
        return self._kept.serving

    async def keep(self, changed: Callable[[Serving], None]) -> None:
        while True:
            assert self._kept is not None
            due = next_due(self._kept, self._names, self._lifetimes) - self._clock.wall()
            await self._clock.sleep(max(due.total_seconds(), _LEAST))
            found = renewed(self._kept, self._names, self._lifetimes, self._clock.wall())
            if found.serving != self._kept.serving:
                changed(found.serving)
            self._kept = found
