"""TLS contexts that are made anew when what they are made of changes; connections from then on use them, others stay as they are."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Hashable, Mapping

from kubeloop.meta.errors import KubeloopError
from kubeloop.serving.listener import bare_context

_LOG = logging.getLogger(__name__)

#: By server name (SNI), for clients that ask for it; the empty one for all others.
Contexts = Mapping[str, ssl.SSLContext]


class RotatingContext:
    """``make`` makes the contexts, at once and whenever ``mark`` gives something else than before; ``mark`` is asked for each connection.

    When ``make`` fails, the contexts made before stay in use, and it is logged.

    Raises:
        Whatever ``make`` raises the first time.
    """

    def __init__(self, make: Callable[[], Contexts], mark: Callable[[], Hashable]) -> None:
        self._make = make
        self._mark = mark
        self._made_for = mark()
        self._contexts = make()
        # What stays for as long as somebody listens: of the others, connections take certificates and authorities, and nothing else.
        self.context = bare_context()
        self.context.sni_callback = self._choose

    def refresh(self) -> None:
        """Look whether new contexts are due."""
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
