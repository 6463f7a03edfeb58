"""Addresses to listen on, as ``host:port``; a host left out is every interface."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from kubeloop.meta import ConfigError


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str, option: str) -> Address:
        """``127.0.0.1:8080``, ``[::1]:8080``, ``localhost:0``, or ``:8080`` for every interface. Port 0 is any that is free.

        Raises:
            ConfigError: it is no address; names ``option``.
        """
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535 or (":" in bare and bare == host):
            raise ConfigError(f'{option}: {text!r} is no address; write "127.0.0.1:8080", or ":8080" for every interface')
        return cls(bare, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
