"""The resolv.conf of a pod's containers, from the pod's dnsPolicy and dnsConfig and from the file of this machine.

Source: Kubernetes pkg/kubelet/network/dns/dns.go; pkg/apis/core/validation (limits).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from kubeloop.kubelet.container_spec import DOMAIN
from kubeloop.types import JSONObject

_OPTIONS = ("ndots:5",)
#: Maximum numbers of name servers and search domains, and of characters of all search domains and of one.
_MAX_SERVERS, _MAX_SEARCHES, _MAX_SEARCH_LENGTH, _MAX_DOMAIN = 3, 32, 2048, 253


@dataclass(frozen=True)
class ResolverConfig:
    """The name servers, search domains and options of a resolv.conf."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The content of the file in the order of a container runtime: search, nameserver, options.

        Example:
            >>> ResolverConfig(("127.64.255.254",), ("svc.cluster.local",), ("ndots:5",)).text
            'search svc.cluster.local\\nnameserver 127.64.255.254\\noptions ndots:5\\n'
        """
        lines = [f"search {' '.join(self.searches)}"] if self.searches else []
        lines += [f"nameserver {server}" for server in self.servers]
        lines += [f"options {' '.join(self.options)}"] if self.options else []
        return "".join(f"{line}\n" for line in lines)

    def resolvers(self) -> list[tuple[str, int]]:
        """Return address and port (53) of the name servers with valid IP addresses."""
        result = []
        for server in self.servers:
            try:
                result.append((str(ip_address(server)), 53))
            except ValueError:
                continue
        return result


def parse_resolver_config(text: str) -> ResolverConfig:
    """Parse a resolv.conf; lines other than nameserver, search and options are ignored."""
    servers: list[str] = []
    searches: tuple[str, ...] = ()
    options: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "nameserver" and len(words) > 1:
            servers.append(words[1])
        elif words[0] == "search":
            searches = tuple(word.removesuffix(".") for word in words[1:] if word != ".")
        elif words[0] == "options":
            options |= {word.partition(":")[0]: word for word in words[1:]}
    return ResolverConfig(tuple(servers), searches, tuple(options.values()))


def pod_resolver_config(pod: JSONObject, machine: ResolverConfig, cluster_server: str) -> tuple[ResolverConfig, list[str]]:
    """Return the resolver configuration of a pod, and warnings for Events with the reason DNSConfigForming.

    Args:
        pod: The pod.
        machine: The configuration of this machine.
        cluster_server: The address of the cluster's DNS server; empty: there is none, and pods use this machine's configuration.
    """
    spec, namespace = pod["spec"], pod["metadata"].get("namespace") or ""
    policy = spec.get("dnsPolicy") or "ClusterFirst"
    if policy == "ClusterFirst" and spec.get("hostNetwork"):
        policy = "Default"
    base = machine
    if policy == "None":
        base = ResolverConfig()
    elif policy != "Default" and cluster_server:
        searches = (f"{namespace}.svc.{DOMAIN}", f"svc.{DOMAIN}", DOMAIN, *machine.searches)
        base = ResolverConfig((cluster_server,), tuple(dict.fromkeys(searches)), _OPTIONS)
    own = spec.get("dnsConfig")
    if own:
        options = {option.partition(":")[0]: option for option in base.options}
        for option in own.get("options") or ():
            options[option["name"]] = f"{option['name']}:{option['value']}" if option.get("value") else option["name"]
        base = ResolverConfig(
            tuple(dict.fromkeys((*base.servers, *(own.get("nameservers") or ())))),
            tuple(dict.fromkeys((*base.searches, *(own.get("searches") or ())))),
            tuple(options.values()),
        )
    return _within_limits(base)


def _within_limits(config: ResolverConfig) -> tuple[ResolverConfig, list[str]]:
    warnings = []
    servers = config.servers[:_MAX_SERVERS]
    if servers != config.servers:
        shown = " ".join(servers)
        warnings.append(f"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {shown}")
    searches = _fitting(config.searches)
    if searches != config.searches:
        shown = " ".join(searches)
        warnings.append(f"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {shown}")
    return ResolverConfig(servers, searches, config.options), warnings


def _fitting(searches: Sequence[str]) -> tuple[str, ...]:
    result = [search for search in searches[:_MAX_SEARCHES] if len(search) <= _MAX_DOMAIN]
    while len(" ".join(result)) > _MAX_SEARCH_LENGTH:
        result.pop()
    return tuple(result)


def read_machine_config(paths: Iterable[str] = ("/run/systemd/resolve/resolv.conf", "/etc/resolv.conf")) -> ResolverConfig:
    """Return the resolver configuration of this machine; an empty one if no file can be read.

    Args:
        paths: The files, of which the first readable one counts. The file of systemd-resolved, which kubeadm uses too, has the addresses of
            the servers behind the stub resolver.
    """
    for path in paths:
        try:
            with Path(path).open(encoding="utf-8", errors="replace") as file:
                return parse_resolver_config(file.read(1 << 20))
        except OSError:
            continue
    return ResolverConfig()
