"""Whose client certificates are believed: the own authority's, those of --client-ca-file, for proxies --requestheader-client-ca-file.

Files are read again when they change, for connections and requests from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kubeloop.apiserver.authentication.certificates import Bundle
from kubeloop.meta.errors import ConfigError
from kubeloop.pki.watched import WatchedFile

_LOG = logging.getLogger("kubeloop.apiserver.authentication")

_CLIENTS: Final = "--client-ca-file"
_PROXIES: Final = "--requestheader-client-ca-file"


class _File:
    """A bundle in a file. What is there is in force as long as what replaces it cannot be read."""

    def __init__(self, path: Path, flag: str) -> None:
        self._file = WatchedFile(path, flag)
        self._mark = self._file.mark()
        self.pem = self._file.read()
        self.bundle = _bundle(self.pem, f"{flag} {path}")

    def refresh(self) -> bool:
        """Whether it is another one now."""
        mark = self._file.mark()
        if mark == self._mark:
            return False
        self._mark = mark
        try:
            pem = self._file.read()
            bundle = _bundle(pem, f"{self._file.flag} {self._file.path}")
        except ConfigError as fault:
            _LOG.warning("%s; what was read before stays in force", fault)
            return False
        _LOG.info("%s %s was read again", self._file.flag, self._file.path)
        self.pem, self.bundle = pem, bundle
        return True


class ClientAuthorities:
    """The authorities whose certificates authenticate clients and front proxies, read again when their files change.

    Raises ConfigError when a file cannot be read at first; later it logs the error.
    """

    def __init__(self, own: bytes, clients: Path | None = None, proxies: Path | None = None) -> None:
        self._own_pem = own
        self._own = Bundle(own)
        self._clients = _File(clients, _CLIENTS) if clients is not None else None
        self._proxies = _File(proxies, _PROXIES) if proxies is not None else None
        self._files = tuple(one for one in (self._clients, self._proxies) if one is not None)
        #: Raised with each change.
        self.generation = 0
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` each time that a file was read again. Returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def refresh(self) -> int:
        """Look at the files; the generation that is in force."""
        changed = [one.refresh() for one in self._files]
        if any(changed):
            self.generation += 1
            for listener in tuple(self._listeners):
                listener()
        return self.generation

    @property
    def clients_pem(self) -> bytes:
        return self._own_pem + (self._clients.pem if self._clients is not None else b"")

    @property
    def proxies_pem(self) -> bytes:
        """Empty: nobody may speak for others."""
        return self._proxies.pem if self._proxies is not None else b""

    @property
    def all_pem(self) -> bytes:
        """For TLS to let in."""
        return self.clients_pem + b"\n" + self.proxies_pem

    def is_client(self, chain: tuple[bytes, ...]) -> bool:
        """``chain``: of a certificate that TLS let in."""
        if not self._files:
            return True  # then the own authority is the only one
        return self._own.has_issued(chain) or (self._clients is not None and self._clients.bundle.has_issued(chain))

    def is_proxy(self, chain: tuple[bytes, ...]) -> bool:
        return self._proxies is not None and self._proxies.bundle.has_issued(chain)


def _bundle(pem: bytes, what: str) -> Bundle:
    try:
        return Bundle(pem)
    except ValueError:
        raise ConfigError(f"{what}: no certificates in it that can be read; PEM is wanted") from None
