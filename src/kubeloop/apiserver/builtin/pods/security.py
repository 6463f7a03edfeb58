"""Validates security contexts of pods and containers, seccomp and AppArmor.

Source: ValidateSecurityContext, validatePodSpecSecurityContext.
"""

from __future__ import annotations

import re

from kubeloop.apiserver.builtin.pods.options import PodOptions, all_containers
from kubeloop.apiserver.builtin.pods.windows import validate_windows_options
from kubeloop.apiserver.validation.formats import check_local_path, check_one_of, each, unsupported, validate_user_id
from kubeloop.meta.field_error import Errors, duplicate, forbidden, invalid, required, too_long
from kubeloop.types import JSONObject

# Old annotations for security profiles must agree with the fields. Source: validateSeccompAnnotationsAndFields.


SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"


def validate_seccomp_annotations(path: str, annotations: dict[str, str]) -> Errors:
    """Validate the seccomp annotations."""
    if SECCOMP_POD in annotations:
        yield from _seccomp_value(f"{path}.{SECCOMP_POD}", annotations[SECCOMP_POD])
    for key, value in annotations.items():
        if key.startswith(SECCOMP_CONTAINER):
            yield from _seccomp_value(f"{path}.{key}", value)


def _seccomp_value(path: str, value: str) -> Errors:
    if value in ("runtime/default", "docker/default", "unconfined"):
        return
    if value.startswith("localhost/"):
        yield from check_local_path(path, value.removeprefix("localhost/"))
    else:
        yield invalid(path, value, "must be a valid seccomp profile")


def validate_app_armor_annotations(path: str, annotations: dict[str, str], spec: JSONObject) -> Errors:
    """Validate the AppArmor annotations."""
    names = {container.get("name", "") for container, _ in all_containers(spec, "")}
    for key, value in annotations.items():
        if not key.startswith(APP_ARMOR):
            continue
        name = key.removeprefix(APP_ARMOR)
        if name not in names:
            yield invalid(f"{path}[{key}]", name, "container not found")
        if value not in ("", "runtime/default", "unconfined") and not value.startswith("localhost/"):
            yield invalid(f"{path}[{key}]", value, f'invalid AppArmor profile name: "{value}"')


def check_profiles_match(path: str, annotations: dict[str, str], spec: JSONObject) -> Errors:
    """Check that annotations and fields agree in new pods and templates: seccomp first, then AppArmor (not on Windows)."""
    context = spec.get("securityContext") or {}
    if SECCOMP_POD in annotations:
        yield from _seccomp_match(f"{path}.securityContext.seccompProfile", annotations[SECCOMP_POD], context.get("seccompProfile"))
    for container, here in all_containers(spec, path):
        value = annotations.get(SECCOMP_CONTAINER + container.get("name", ""))
        if value is not None:
            own = (container.get("securityContext") or {}).get("seccompProfile")
            yield from _seccomp_match(f"{here}.securityContext.seccompProfile", value, own)
    if (spec.get("os") or {}).get("name") == "windows":
        return
    for container, here in all_containers(spec, path):
        value = annotations.get(APP_ARMOR + container.get("name", ""))
        profile = (container.get("securityContext") or {}).get("appArmorProfile") or context.get("appArmorProfile")
        if value is not None and profile is not None:
            yield from _match(f"{here}.securityContext.appArmorProfile", value, profile, "apparmor", ("runtime/default",))


def _seccomp_match(path: str, value: str, profile: JSONObject | None) -> Errors:
    if profile is not None:
        yield from _match(path, value, profile, "seccomp", ("runtime/default", "docker/default"))


def _match(path: str, value: str, profile: JSONObject, feature: str, runtime: tuple[str, ...]) -> Errors:
    kind = profile.get("type")
    wrong_type = (
        (kind == "Unconfined" and value != "unconfined")
        or (kind == "RuntimeDefault" and value not in runtime)
        or (kind == "Localhost" and not value.startswith("localhost/"))
    )
    if wrong_type:
        yield forbidden(f"{path}.type", f"{feature} type in annotation and field must match")
    elif kind == "Localhost" and value.removeprefix("localhost/") != profile.get("localhostProfile"):
        yield forbidden(f"{path}.localhostProfile", f"{feature} profile in annotation and field must match")


_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSCTL = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_IPC_SYSCTLS = ("kernel.shm", "kernel.msg", "fs.mqueue.")


def validate_container_security(path: str, value: JSONObject | None, *, host_users: bool) -> Errors:
    """Validate the security context of a container. ``host_users`` is False in a user namespace."""
    if value is None:
        return
    for name in ("runAsUser", "runAsGroup"):
        if value.get(name) is not None:
            yield from each(f"{path}.{name}", value[name], validate_user_id(value[name]))
    mount = value.get("procMount")
    if mount is not None:
        yield from check_one_of(f"{path}.procMount", mount, ("Default", "Unmasked"))
        if host_users and mount == "Unmasked":
            yield invalid(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`")
    yield from validate_seccomp(f"{path}.seccompProfile", value.get("seccompProfile"))
    if value.get("allowPrivilegeEscalation") is False:
        if value.get("privileged"):
            yield invalid(path, value, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
        for capability in (value.get("capabilities") or {}).get("add") or ():
            if capability == "CAP_SYS_ADMIN":
                detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
                yield invalid(path, value, detail)
    yield from validate_windows_options(f"{path}.windowsOptions", value.get("windowsOptions"))
    yield from validate_app_armor(f"{path}.appArmorProfile", value.get("appArmorProfile"))


def validate_pod_security(path: str, spec: JSONObject, options: PodOptions) -> Errors:
    """Validate the security context of a pod."""
    value = spec.get("securityContext")
    if value is None:
        return
    for name in ("fsGroup", "runAsUser", "runAsGroup"):
        if value.get(name) is not None:
            yield from each(f"{path}.{name}", value[name], validate_user_id(value[name]))
    for index, group in enumerate(value.get("supplementalGroups") or ()):
        yield from each(f"{path}.supplementalGroups[{index}]", group, validate_user_id(group))
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        yield invalid(f"{path}.shareProcessNamespace", True, "ShareProcessNamespace and HostPID cannot both be enabled")
    yield from _sysctls(f"{path}.sysctls", value.get("sysctls") or [], spec, options)
    if value.get("fsGroupChangePolicy") is not None:
        yield from check_one_of(f"{path}.fsGroupChangePolicy", value["fsGroupChangePolicy"], ("Always", "OnRootMismatch"))
    yield from validate_seccomp(f"{path}.seccompProfile", value.get("seccompProfile"))
    yield from validate_windows_options(f"{path}.windowsOptions", value.get("windowsOptions"))
    yield from validate_app_armor(f"{path}.appArmorProfile", value.get("appArmorProfile"))
    if value.get("supplementalGroupsPolicy") is not None:
        yield from check_one_of(f"{path}.supplementalGroupsPolicy", value["supplementalGroupsPolicy"], ("Merge", "Strict"))
    if value.get("seLinuxChangePolicy") is not None:
        yield from check_one_of(f"{path}.seLinuxChangePolicy", value["seLinuxChangePolicy"], ("Recursive",))


def _sysctls(path: str, sysctls: list[JSONObject], spec: JSONObject, options: PodOptions) -> Errors:
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        here, name = f"{path}[{index}].name", sysctl.get("name", "")
        if not name:
            yield required(here)
        elif len(name) > 253 or not re.fullmatch(_SYSCTL, name):
            yield invalid(here, name, f"must have at most 253 characters and match regex ^{_SYSCTL}$")
        elif name in seen:
            yield duplicate(here, name)
        if not options.host_sysctls and (error := host_sysctl_error(name, spec)):
            yield invalid(here, name, error)
        seen.add(name)


def host_sysctl_error(name: str, spec: JSONObject) -> str:
    """Return the error if a sysctl would change the host, because the pod shares the namespace concerned, or an empty text."""
    dotted = _dotted(name)
    if spec.get("hostNetwork") and dotted.startswith("net."):
        return "may not be specified when 'hostNetwork' is true"
    if spec.get("hostIPC") and (dotted == "kernel.sem" or dotted.startswith(_IPC_SYSCTLS)):
        return "may not be specified when 'hostIPC' is true"
    return ""


def _dotted(name: str) -> str:
    """Return the name of a sysctl with dots: sysctl(8) swaps dots and slashes if a slash comes first."""
    first = re.search(r"[./]", name)
    return name.translate(str.maketrans("./", "/.")) if first and first.group() == "/" else name


def validate_seccomp(path: str, profile: JSONObject | None) -> Errors:
    """Validate a seccomp profile."""
    if profile is None:
        return
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    if not kind:
        yield required(f"{path}.type", "type is required when seccompProfile is set")
    elif kind not in _PROFILES:
        yield unsupported(f"{path}.type", kind, _PROFILES)
    if kind == "Localhost":
        if local is None:
            yield required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost")
        else:
            yield from check_local_path(f"{path}.localhostProfile", local)
    elif local is not None:
        yield invalid(
            f"{path}.localhostProfile", {"Type": kind, "LocalhostProfile": local}, "can only be set when seccomp type is Localhost"
        )


def validate_app_armor(path: str, profile: JSONObject | None) -> Errors:
    """Validate an AppArmor profile."""
    if profile is None:
        return
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    if kind == "Localhost":
        yield from _local_app_armor(f"{path}.localhostProfile", local)
    elif kind in ("RuntimeDefault", "Unconfined"):
        if local is not None:
            yield invalid(f"{path}.localhostProfile", local, "can only be set when AppArmor type is Localhost")
    elif not kind:
        yield required(f"{path}.type", "type is required when appArmorProfile is set")
    else:
        yield unsupported(f"{path}.type", kind, _PROFILES)


def _local_app_armor(path: str, local: str | None) -> Errors:
    if local is None:
        yield required(path, "must be set when AppArmor type is Localhost")
        return
    if local.strip() != local:
        yield invalid(path, local, "must not be padded with whitespace")
    elif not local:
        yield required(path, "must be set when AppArmor type is Localhost")
    if len(local.encode()) > 4095:
        yield too_long(path, 4095)
