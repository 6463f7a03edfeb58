"""The verbs of the Kubernetes API, typed: ``await client.get(Pod, "web-0", namespace="shop")`` is a ``Pod``.

One client is one cluster and one user; several in one process are the normal case. The verbs themselves are in ``verbs/``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Self

from kubeloop.client.mapper import Mapper, namespace_fault
from kubeloop.client.options import Validation, WriteOptions
from kubeloop.client.streams.methods import PodVerbs
from kubeloop.client.verbs.applying import Applying
from kubeloop.client.verbs.changing import Changing
from kubeloop.client.verbs.deleting import Deleting
from kubeloop.client.verbs.patching import Patching
from kubeloop.client.verbs.subresources import CertificateVerbs, ServiceAccountVerbs, Subresources
from kubeloop.client.verbs.waiting import Waiting
from kubeloop.client.write_hooks import Listener, WriteListeners
from kubeloop.config import Overrides, PluginPolicy, load_config
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import Transport


class Client(Waiting, Changing, Patching, Applying, Deleting, Subresources):
    """The API of one cluster as one user. For one event loop; use it as ``async with``, or call ``close``.

    Namespaces
        ``namespace=None`` is the object's own, else the configuration's (``client.namespace``), in every method. Lists, watches and
        informers of all namespaces say so: ``namespace=ALL_NAMESPACES``. ``in_namespace`` gives a client of one namespace only.

    Time limits
        ``timeout`` is in seconds and limits the whole call, which then raises ``DeadlineError``; 0 does not wait at all. None is no limit
        but that of each request (``Transport(timeout=)``, 15 minutes). Waits must be given a number. A watch ends without an error.

    Raises
        ``ApiError`` by reason (``NotFound``, ``Conflict``, ``Invalid`` with causes ...): the server refused.
        ``TransportError``: no answer; a write may still have been carried out.
        ``UnknownKind``: the kind is not known here or not served. ``DecodeError``: the answer is not of the kind asked for.
        ``ValueError``: a name or namespace that cannot be one, or a field that holds a value of another type; nothing was sent.
    """

    def __init__(self, transport: Transport, *, namespace: str | None = None, clock: Clock | None = None) -> None:
        self.transport = transport
        self.namespace = namespace or transport.config.namespace
        self.mapper = Mapper(transport)
        self.clock: Clock = clock or SystemClock()
        self._writes = WriteListeners()
        self._defaults = WriteOptions()
        self._confined = False
        self._lent = False

    @classmethod
    def from_config(
        cls,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        *,
        overrides: Overrides | None = None,
        plugin_policy: PluginPolicy | None = None,
    ) -> Self:
        """A client for a kubeconfig, by default KUBECONFIG, ~/.kube/config or the pod's own cluster (``load_config``).

        ``overrides`` are what a program's own flags say; they win. ``plugin_policy`` says which credential plugins may run.

        Raises:
            ConfigError: nothing usable was found.
        """
        return cls(Transport(load_config(kubeconfig, context, overrides=overrides, plugin_policy=plugin_policy)))

    def __repr__(self) -> str:
        return f'<Client of cluster "{self.cluster}" at {self.transport.config.server}, namespace "{self.namespace}">'

    @property
    def cluster(self) -> str:
        """The cluster's name, as in ``ObjectKey.cluster``."""
        return self.transport.cluster

    @property
    def pods(self) -> PodVerbs:
        """What concerns pods only: logs, commands, ports, files, eviction (docs/streams.md)."""
        return PodVerbs(self)

    @property
    def certificates(self) -> CertificateVerbs:
        """Approval of CertificateSigningRequests."""
        return CertificateVerbs(self)

    @property
    def service_accounts(self) -> ServiceAccountVerbs:
        """Tokens of service accounts."""
        return ServiceAccountVerbs(self)

    def in_namespace(self, namespace: str) -> Self:
        """A client of one namespace: lists and watches are of it too, and another one is refused before anything is sent.

        It shares connections, discovery and listeners with this one, which closes them. Cluster-scoped kinds are as before.

        Raises:
            ValueError: that cannot be a namespace.
        """
        fault = namespace_fault(namespace)
        if fault:
            raise ValueError(fault)
        view = self._view()
        view.namespace, view._confined = namespace, True
        return view

    def with_options(self, *, field_manager: str = "", dry_run: bool = False, field_validation: Validation | None = None) -> Self:
        """A client whose writes are done so unless a call says otherwise; it shares connections with this one, which closes them.

        ``dry_run`` holds for every write, deletions and evictions too, and cannot be taken back by a call.
        """
        view = self._view()
        wanted = WriteOptions(field_manager=field_manager, dry_run=dry_run, field_validation=field_validation)
        view._defaults = wanted.over(self._defaults)
        return view

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; running calls and watches end with ``TransportError``. A view of another client closes nothing."""
        if not self._lent:
            await self.transport.close()

    def on_write(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with a ``Write`` after each write that the server has stored, before the write returns to its caller.

        Returns what removes it. While nobody listens, writes pay nothing. What a listener raises is logged, not raised.
        """
        return self._writes.add(listener)

    def _view(self) -> Self:
        view = copy.copy(self)
        view._lent = True
        return view
