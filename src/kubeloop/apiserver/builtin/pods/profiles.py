"""Annotations that once stood for security profiles must agree with the fields. Source: validateSeccompAnnotationsAndFields and kin."""

from __future__ import annotations

from kubeloop.apiserver.builtin.pods.options import all_containers
from kubeloop.apiserver.builtin.pods.paths import descending
from kubeloop.meta.field_error import Errors, forbidden, invalid
from kubeloop.types import JSONObject

SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"


def seccomp_annotations(path: str, annotations: dict[str, str]) -> Errors:
    if SECCOMP_POD in annotations:
        yield from _seccomp_value(f"{path}.{SECCOMP_POD}", annotations[SECCOMP_POD])
    for key, value in annotations.items():
        if key.startswith(SECCOMP_CONTAINER):
            yield from _seccomp_value(f"{path}.{key}", value)


def _seccomp_value(path: str, value: str) -> Errors:
    if value in ("runtime/default", "docker/default", "unconfined"):
        return
    if value.startswith("localhost/"):
        yield from descending(path, value.removeprefix("localhost/"))
    else:
        yield invalid(path, value, "must be a valid seccomp profile")


def app_armor_annotations(path: str, annotations: dict[str, str], spec: JSONObject) -> Errors:
    names = {container.get("name", "") for container, _ in all_containers(spec, "")}
    for key, value in annotations.items():
        if not key.startswith(APP_ARMOR):
            continue
        name = key.removeprefix(APP_ARMOR)
        if name not in names:
            yield invalid(f"{path}[{key}]", name, "container not found")
        if value not in ("", "runtime/default", "unconfined") and not value.startswith("localhost/"):
            yield invalid(f"{path}[{key}]", value, f'invalid AppArmor profile name: "{value}"')


def profiles_match(path: str, annotations: dict[str, str], spec: JSONObject) -> Errors:
    """Both checks of a pod to be created, and of templates: seccomp first, then AppArmor (not on Windows)."""
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


def _match(path: str, value: str, profile: JSONObject, what: str, runtime: tuple[str, ...]) -> Errors:
    kind = profile.get("type")
    wrong_type = (
        (kind == "Unconfined" and value != "unconfined")
        or (kind == "RuntimeDefault" and value not in runtime)
        or (kind == "Localhost" and not value.startswith("localhost/"))
    )
    if wrong_type:
        yield forbidden(f"{path}.type", f"{what} type in annotation and field must match")
    elif kind == "Localhost" and value.removeprefix("localhost/") != profile.get("localhostProfile"):
        yield forbidden(f"{path}.localhostProfile", f"{what} profile in annotation and field must match")
