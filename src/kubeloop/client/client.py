"""The typed client of the Kubernetes API: ``await client.get(Pod, "web-0", namespace="shop")`` returns a ``Pod``.

A client serves one cluster and one user; a process may have several. The methods are in ``verbs/``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Self

from kubeloop.client.mapper import Mapper, namespace_error
from kubeloop.client.options import Validation, WriteOptions
from kubeloop.client.streams.methods import PodVerbs
from kubeloop.client.verbs.apply import Applying
from kubeloop.client.verbs.delete import Deleting
from kubeloop.client.verbs.patch import Patching
from kubeloop.client.verbs.subresources import CertificateVerbs, ServiceAccountVerbs, Subresources
from kubeloop.client.verbs.update_with_retry import Changing
from kubeloop.client.verbs.wait import Waiting
from kubeloop.client.write_hooks import Listener, WriteListeners
from kubeloop.config import Overrides, PluginPolicy, load_config
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import Transport


class Client(Waiting, Changing, Patching, Applying, Deleting, Subresources):
    """The API of one cluster as one user. It belongs to one event loop; use it with ``async with``, or call ``close``.

    >>> settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings"), data={"color": "blue"}))
    >>> (await client.get(ConfigMap, "settings")).data
    {'color': 'blue'}
    >>> [pod.metadata.name async for pod in client.list(Pod, label_selector="app=web")]
    []

    Namespaces
        In every method ``namespace=None`` means the namespace of the object, or else that of the configuration (``client.namespace``).
        Lists, watches and informers of all namespaces require ``namespace=ALL_NAMESPACES``. ``in_namespace`` returns a client that is
        limited to one namespace.

    Time limits
        ``timeout`` is in seconds and limits the whole call, which then raises ``DeadlineError``; 0 does not wait at all. None means that
        only each request is limited (``Transport(timeout=)``, 15 minutes). Methods that wait require a number. A watch ends without an
        error.

    Raises
        ``ApiError`` by reason (``NotFound``, ``Conflict``, ``Invalid`` with causes ...): the server refused the request.
        ``TransportError``: no response arrived; the server may still have executed a write.
        ``UnknownKind``: neither the models nor the server know the kind. ``DecodeError``: the response has another kind than requested.
        ``ValueError``: an invalid name or namespace, or a field with a value of another type; nothing was sent.
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
        """Return a client for a kubeconfig (see ``load_config``).

        Args:
            kubeconfig: Path of a kubeconfig. None: ``KUBECONFIG``, ``~/.kube/config`` or the pod's own cluster.
            context: Name of a context. None: the current context.
            overrides: Settings from the flags of a program; they take precedence over the files.
            plugin_policy: The credential plugins that may run. None: all.

        Returns:
            A client without open connections.

        Raises:
            ConfigError: There is no usable configuration.
        """
        return cls(Transport(load_config(kubeconfig, context, overrides=overrides, plugin_policy=plugin_policy)))

    def __repr__(self) -> str:
        return f'<Client of cluster "{self.cluster}" at {self.transport.config.server}, namespace "{self.namespace}">'

    @property
    def cluster(self) -> str:
        """The name of the cluster, as in ``ObjectKey.cluster``."""
        return self.transport.cluster

    @property
    def pods(self) -> PodVerbs:
        """Methods for pods: logs, commands, ports, files, eviction (docs/streams.md)."""
        return PodVerbs(self)

    @property
    def certificates(self) -> CertificateVerbs:
        """Methods for CertificateSigningRequests: approval and denial."""
        return CertificateVerbs(self)

    @property
    def service_accounts(self) -> ServiceAccountVerbs:
        """Methods for service accounts: tokens."""
        return ServiceAccountVerbs(self)

    def in_namespace(self, namespace: str) -> Self:
        """Return a client that is limited to one namespace; it refuses other namespaces before it sends anything.

        It shares connections, discovery and write listeners with this client; only this client closes them. Cluster-scoped kinds are not
        affected.

        Raises:
            ValueError: The namespace is invalid.
        """
        fault = namespace_error(namespace)
        if fault:
            raise ValueError(fault)
        view = self._view()
        view.namespace, view._confined = namespace, True
        return view

    def with_options(self, *, field_manager: str = "", dry_run: bool = False, field_validation: Validation | None = None) -> Self:
        """Return a client with other defaults for writes; it shares the connections of this client, which closes them.

        ``dry_run`` applies to every write, deletions and evictions included; a single call cannot switch it off.
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
        """Close all connections; running calls and watches end with ``TransportError``. A client from ``in_namespace`` closes nothing."""
        if not self._lent:
            await self.transport.close()

    def on_write(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with a ``Write`` after each write that the server has stored, before the write returns to its caller.

        Returns a function that removes the listener. Without listeners, writes have no extra cost. Errors of listeners are logged.
        """
        return self._writes.add(listener)

    def _view(self) -> Self:
        view = copy.copy(self)
        view._lent = True
        return view
