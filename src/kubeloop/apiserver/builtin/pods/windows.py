"""Validates pods on Windows. Source: validateWindowsSecurityContextOptions, validateWindowsHostProcessPod, validateWindows."""

from __future__ import annotations

import re

from kubeloop.apiserver.builtin.pods.options import all_containers
from kubeloop.apiserver.validation.formats import each
from kubeloop.meta.field_error import Errors, Printed, forbidden, go_json, invalid
from kubeloop.meta.names import dns1123_subdomain
from kubeloop.types import JSONObject

_NETBIOS = re.compile(r"""[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}""")
_DNS = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*")
_CREDENTIAL_LIMIT = 64 * 1024

_POD_ONLY_LINUX = ("appArmorProfile", "seLinuxOptions")
_CONTAINER_ONLY_LINUX = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)
#: Fields that Windows lacks, in upstream's order: of the security context unless "spec." precedes them.
_POD_FIELDS = (
    *_POD_ONLY_LINUX,
    "spec.hostUsers",
    "spec.hostPID",
    "spec.hostIPC",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "spec.shareProcessNamespace",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
)


def validate_windows_options(path: str, options: JSONObject | None) -> Errors:
    """Validate the Windows options of a security context."""
    if options is None:
        return
    if (name := options.get("gmsaCredentialSpecName")) is not None:
        yield from each(f"{path}.gmsaCredentialSpecName", name, dns1123_subdomain(name))
    if (spec := options.get("gmsaCredentialSpec")) is not None:
        if not spec:
            yield invalid(f"{path}.gmsaCredentialSpec", spec, "gmsaCredentialSpec cannot be an empty string")
        elif len(spec.encode()) > _CREDENTIAL_LIMIT:
            yield invalid(f"{path}.gmsaCredentialSpec", spec, "gmsaCredentialSpec size must be under 64 KiB")
    if (user := options.get("runAsUserName")) is not None:
        # Upstream quotes the pointer, which gives JSON.
        yield from each(f"{path}.runAsUserName", Printed(go_json(user)), _user_name(user))


def _user_name(name: str) -> list[str]:
    if not name:
        return ["runAsUserName cannot be an empty string"]
    if re.search(r"[\x00-\x1f\x7f]", name):
        return ["runAsUserName cannot contain control characters"]
    if name.count("\\") > 1:
        return ["runAsUserName cannot contain more than one backslash"]
    domain, slash, user = name.rpartition("\\")
    messages = []
    if len(domain) >= 256:
        messages.append("runAsUserName's Domain length must be under 256 characters")
    if slash and not (_NETBIOS.fullmatch(domain) or _DNS.fullmatch(domain)):
        messages.append("runAsUserName's Domain doesn't match the NetBios nor the DNS format")
    if not user:
        messages.append("runAsUserName's User cannot be empty")
    elif len(user) > 104:
        messages.append("runAsUserName's User length must not be longer than 104 characters")
    if re.fullmatch(r"[. ]+", user):
        messages.append("runAsUserName's User cannot contain only periods or spaces")
    if re.search(r"""["/\\:;|=,+*?<>@\[\]]""", user):
        messages.append("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]")
    return messages


def check_host_process(path: str, spec: JSONObject) -> Errors:
    """Check that all containers are host processes or none, and that host processes use the network of the host."""
    of_pod = ((spec.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
    count = total = 0
    for container, here in all_containers(spec, path):
        total += 1
        own = ((container.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
        if of_pod is not None and own is not None and of_pod != own:
            detail = f"pod hostProcess value must be identical if both are specified, was {str(of_pod).lower()}"
            yield invalid(f"{here}.securityContext.windowsOptions.hostProcess", own, detail)
        count += bool(own if own is not None else of_pod)
    if not count:
        return
    if count != total:
        yield invalid(path, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers")
    if not spec.get("hostNetwork"):
        yield invalid(f"{path}.hostNetwork", False, "hostNetwork must be true if pod contains any hostProcess containers")


def check_linux_pod(path: str, spec: JSONObject) -> Errors:
    """Check that a pod for Linux has no Windows options."""
    message = "windows options cannot be set for a linux pod"
    if (spec.get("securityContext") or {}).get("windowsOptions") is not None:
        yield forbidden(f"{path}.securityContext.windowsOptions", message)
    for container, here in all_containers(spec, path):
        if (container.get("securityContext") or {}).get("windowsOptions") is not None:
            yield forbidden(f"{here}.securityContext.windowsOptions", message)


def check_windows_pod(path: str, spec: JSONObject) -> Errors:
    """Check that a pod for Windows has no Linux fields."""
    message = "cannot be set for a windows pod"
    context = spec.get("securityContext")
    if context is not None:
        for name in _POD_FIELDS:
            owner, _, plain = name.rpartition(".")
            value = (spec if owner else context).get(plain)
            # Booleans other than hostUsers and shareProcessNamespace have no pointer in Go: false counts as absent.
            if value is not None and not (value is False and plain in ("hostPID", "hostIPC")):
                yield forbidden(f"{path}.{plain}" if owner else f"{path}.securityContext.{plain}", message)
    for container, here in all_containers(spec, path):
        own = container.get("securityContext") or {}
        for name in _CONTAINER_ONLY_LINUX:
            if own.get(name) is not None:
                yield forbidden(f"{here}.securityContext.{name}", message)
