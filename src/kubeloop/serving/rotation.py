"""TLS contexts that are rebuilt when their sources change; new connections use them, existing ones stay."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Hashable, Mapping

from kubeloop.meta.errors import KubeloopError
from kubeloop.serving.listener import bare_context

_LOG = logging.getLogger("kubeloop.serving")

#: Contexts by server name (SNI); the empty name is the default.
Contexts = Mapping[str, ssl.SSLContext]


class RotatingContext:
    """Provides contexts made by ``make``, at once and whenever the result of ``mark`` changes; ``mark`` is called for each connection.

    If ``make`` fails, the previous contexts stay in use, and the error is logged.

    Raises:
        Any error of the first call of ``make``.
    """

    def __init__(self, make: Callable[[], Contexts], mark: Callable[[], Hashable]) -> None:
        self._make = make
        self._mark = mark
        self._made_for = mark()
        self._contexts = make()
        # This context stays for the listener's lifetime: connections take only certificates and authorities from the others.
        self.context = bare_context()
        self.context.sni_callback = self._choose

    def refresh(self) -> None:
        """Rebuild the contexts if their sources changed."""
        mark = self._mark()
        if mark == self._made_for:
            return
        self._made_for = mark
        try:
            self._contexts = self._make()
        except (KubeloopError, OSError, ValueError) as fault:  # ssl.SSLError is an OSError
            _LOG.warning("certificates cannot be read again; those read before stay in use: %s", fault)
        else:
            _LOG.info("certificates were read again")

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        self.refresh()
        connection.context = self._contexts.get(name or "") or self._contexts[""]
