"""Chooses the proxy for a server: the configured one, else the environment's. ``dial`` connects through it.

Source: golang.org/x/net/http/httpproxy, which kubectl uses; unlike urllib it supports networks (``NO_PROXY=10.0.0.0/8``) and ports.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urlsplit

from kubeloop.meta.errors import ConfigError

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

#: ``socks5`` and ``socks5h`` are the same: the proxy resolves the server's name, as in kubectl.
SCHEMES = ("http", "https", "socks5", "socks5h")
_PORTS = {"http": 80, "https": 443}
_SHOWN_SCHEMES = "http://, https:// and socks5:// proxies"


class Proxy(NamedTuple):
    """A proxy. ``origin`` names the setting, for messages. Printing it shows no password."""

    url: SplitResult
    origin: str

    @property
    def shown(self) -> str:
        """The address without user and password."""
        return f"{self.url.scheme}://{self.url.netloc.rpartition('@')[2]}"

    @property
    def socks(self) -> bool:
        """True for a SOCKS 5 proxy (RFC 1928), False for HTTP."""
        return self.url.scheme.startswith("socks5")

    def __repr__(self) -> str:
        return f"Proxy({self.shown}, {self.origin})"


def proxy_for(server: SplitResult, configured: str, source: str, environment: Mapping[str, str] | None = None) -> Proxy | None:
    """Return the proxy for a server's URL, or None for a direct connection.

    Args:
        server: The server's URL.
        configured: The configured proxy's URL; it is used whatever ``NO_PROXY`` contains. Empty: none.
        source: Name of that setting, for messages.
        environment: Environment variables. None: those of the process.

    Raises:
        ConfigError: The environment's proxy is unusable.
    """
    if configured:
        return Proxy(urlsplit(configured), f"proxy-url in {source}")
    environment = os.environ if environment is None else environment
    for name in (f"{server.scheme}_proxy".upper(), f"{server.scheme}_proxy"):
        if (value := environment.get(name, "")) and not (name == "HTTP_PROXY" and "REQUEST_METHOD" in environment):  # CVE-2016-5385
            break
    else:
        return None
    port = server.port if server.port is not None else _PORTS.get(server.scheme, 0)
    if not _uses_proxy(server.hostname or "", port, environment.get("NO_PROXY") or environment.get("no_proxy") or ""):
        return None
    return Proxy(_parse(value, name), name)


def is_proxy_url(text: str) -> bool:
    """Return whether a URL is usable for a proxy: it has a scheme of ``SCHEMES`` and a host."""
    try:
        url = urlsplit(text)
        return url.scheme in SCHEMES and bool(url.hostname) and url.port != 0 and text.isprintable()
    except ValueError:
        return False


def not_a_proxy(setting: str, shown: str) -> ConfigError:
    """Return the error for a configured proxy that ``is_proxy_url`` refuses."""
    return ConfigError(f'{setting}: only {_SHOWN_SCHEMES} are supported, written as http://HOST:PORT, not "{shown}"')


def _parse(value: str, name: str) -> SplitResult:
    text = value if "://" in value else f"http://{value}"
    if not is_proxy_url(text):
        # Not the value: it may contain a password. Go ignores such a variable and connects directly, which hides the mistake.
        raise ConfigError(f"{name} is not a usable URL of a proxy; write it as http://HOST:PORT, or leave it out")
    return urlsplit(text)


def _uses_proxy(host: str, port: int, without: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    for entry in (one.strip().lower() for one in without.split(",")):
        if entry == "*":
            return False
        if not entry:
            continue
        if (network := _network(entry)) is not None:
            if address is not None and address in network:
                return False
            continue
        name, entry_port = _split_port(entry)
        if not name or entry_port not in ("", str(port)):
            continue
        listed = _address(name)
        if listed is not None or address is not None:
            if listed == address:
                return False
        elif _is_below(_ascii(host), _ascii(name)):
            return False
    return True


def _is_below(host: str, entry: str) -> bool:
    """Return whether an entry of NO_PROXY matches a host.

    ``example.com`` matches the name itself and all names below it; ``.example.com`` and ``*.example.com`` match only names below it.
    """
    if entry.startswith("*."):
        entry = entry[1:]
    return host.endswith(entry) if entry.startswith(".") else host == entry or host.endswith(f".{entry}")


def _address(text: str) -> IPv4Address | IPv6Address | None:
    from ipaddress import ip_address

    try:
        found = ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _network(entry: str) -> IPv4Network | IPv6Network | None:
    if "/" not in entry:
        return None
    from ipaddress import ip_network

    try:
        # "10.0.0.0/255.0.0.0" is a network for Python, but not for Go.
        return ip_network(entry, strict=False) if entry.rpartition("/")[2].isdecimal() else None
    except ValueError:
        return None


def _split_port(entry: str) -> tuple[str, str]:
    """Split host and port as Go's net.SplitHostPort does. A text that it rejects is returned as the host, brackets and colons included."""
    if entry.startswith("["):
        name, bracket, port = entry[1:].partition("]")
        if bracket and port.startswith(":") and ":" not in port[1:]:
            return name, port[1:]
    elif entry.count(":") == 1:
        name, _, port = entry.partition(":")
        return name, port
    return entry, ""


def _ascii(host: str) -> str:
    """Return an international host name in ASCII (IDNA), as in certificates and NO_PROXY lists."""
    host = host.lower()
    if host.isascii():
        return host
    try:
        return ".".join(label.encode("idna").decode("ascii") for label in host.split("."))
    except UnicodeError:
        return host
