"""Names, DNS and namespaces that a pod shares with its host. Source: validatePodDNSConfig, validateHostUsers, validatePodHostName."""

from __future__ import annotations

from kubeloop.apiserver.builtin.pods.options import Errors, JSONObject, all_containers
from kubeloop.apiserver.validation.formats import each, ip_address, subdomain_field, subdomain_with_underscore
from kubeloop.meta.field_error import forbidden, invalid, required, too_long


def dns_config(path: str, config: JSONObject | None, policy: str) -> Errors:
    if policy == "None":
        if config is None:
            yield required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            yield required(f"{path}.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
            return
    if config is None:
        return
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > 3:
        yield invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers")
    for at, server in enumerate(servers):
        yield from each(f"{path}.nameservers[{at}]", server, ip_address(server))
    if len(searches) > 32:
        yield invalid(f"{path}.searches", searches, "must not have more than 32 search paths")
    if len(" ".join(searches)) > 2048:
        yield invalid(f"{path}.searches", searches, "must not have more than 2048 characters (including spaces) in the search list")
    for at, search in enumerate(searches):
        if search != ".":
            plain = search.removesuffix(".")
            yield from each(f"{path}.searches[{at}]", plain, subdomain_with_underscore(plain))
    for at, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield required(f"{path}.options[{at}]", "must not be empty")


def host_aliases(path: str, aliases: list[JSONObject]) -> Errors:
    for at, alias in enumerate(aliases):
        address = alias.get("ip", "")
        yield from each(f"{path}[{at}].ip", address, ip_address(address))
        for name_at, name in enumerate(alias.get("hostnames") or ()):
            yield from subdomain_field(f"{path}[{at}].hostnames[{name_at}]", name)


def host_users(path: str, spec: JSONObject) -> Errors:
    """A user namespace of its own goes with no other namespace of the host."""
    if spec.get("hostUsers") is not False:
        return
    message = "when `hostUsers` is false"
    for name, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(name):
            yield forbidden(f"{path}.{shown}", message)
    for container, here in all_containers(spec, path):
        if container.get("volumeDevices"):
            yield forbidden(f"{here}.volumeDevices", message)


def host_name(path: str, spec: JSONObject) -> Errors:
    name = spec.get("hostnameOverride")
    if name is None:
        return
    here = f"{path}.hostnameOverride"
    if spec.get("setHostnameAsFQDN"):
        yield forbidden(here, "may not be specified when setHostnameAsFQDN is true")
    if spec.get("hostNetwork"):
        yield forbidden(here, "may not be specified when hostNetwork is true")
    if len(name.encode()) > 64:
        yield too_long(here, 64)
    yield from subdomain_field(here, name)
