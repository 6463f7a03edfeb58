"""Which proxy a server is reached through: the configuration's, else the environment's.

Source: golang.org/x/net/http/httpproxy, which kubectl follows; unlike urllib it knows networks (``NO_PROXY=10.0.0.0/8``) and ports.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from kubeloop.meta.errors import ConfigError


class Proxy(NamedTuple):
    """``origin`` names the setting, for messages. Printing it shows no password."""

    url: SplitResult
    origin: str

    @property
    def shown(self) -> str:
        """The address without user and password."""
        return f"{self.url.scheme}://{self.url.netloc.rpartition('@')[2]}"

    def __repr__(self) -> str:
        return f"Proxy({self.shown}, {self.origin})"


def proxy_for(server: SplitResult, configured: str, source: str, environment: Mapping[str, str] | None = None) -> Proxy | None:
    """The proxy for a server's URL; None if it is reached directly. A configured one is used whatever ``NO_PROXY`` says.

    Raises:
        ConfigError: the environment's proxy is none that can be used.
    """
    if configured:
        return Proxy(urlsplit(configured), f"proxy-url in {source}")
    environment = os.environ if environment is None else environment
    for name in (f"{server.scheme}_proxy".upper(), f"{server.scheme}_proxy"):
        if (value := environment.get(name, "")) and not (name == "HTTP_PROXY" and "REQUEST_METHOD" in environment):  # CVE-2016-5385
            break
    else:
        return None
    port = server.port if server.port is not None else 443 if server.scheme == "https" else 80
    if not _uses_proxy(server.hostname or "", port, environment.get("NO_PROXY") or environment.get("no_proxy") or ""):
        return None
    return Proxy(_parse(value, name), name)


def _parse(value: str, name: str) -> SplitResult:
    try:
        url = urlsplit(value if "://" in value else f"http://{value}")
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        # Not the value: it may hold a password.
        raise ConfigError(f"{name} is no URL of a proxy that can be used; write it as http://HOST:PORT, or leave it out")
    return url


def _uses_proxy(host: str, port: int, without: str) -> bool:
    import ipaddress

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    host = host.lower().rstrip(".")
    for entry in (one.strip().lower() for one in without.split(",")):
        if entry == "*":
            return False
        name, entry_port = _split_port(entry)
        if not name or entry_port not in (None, port):
            continue
        if address is not None:
            try:
                if address in ipaddress.ip_network(name, strict=False):
                    return False
            except ValueError:
                pass
        # "example.com" is the name itself and all below it; ".example.com" and "*.example.com" are only those below.
        elif host.endswith("." + name.removeprefix("*").removeprefix(".")) or host == name:
            return False
    return True


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        port = port.removeprefix(":")
    elif entry.count(":") == 1:
        name, _, port = entry.partition(":")
    else:
        name, port = entry, ""
    return name, int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else None
