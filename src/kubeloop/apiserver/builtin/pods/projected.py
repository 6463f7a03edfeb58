"""Projected volumes and the files of downward API, ConfigMap and Secret volumes. Source: validateProjectionSources, validateKeyToPath."""

from __future__ import annotations

from kubeloop.apiserver.builtin.pods.environment import VOLUME_FIELDS, object_field, resource_field
from kubeloop.apiserver.builtin.pods.options import Errors, JSONObject
from kubeloop.apiserver.builtin.pods.paths import file_mode, not_reserved
from kubeloop.meta.field_error import forbidden, invalid, required


def key_to_path(path: str, item: JSONObject) -> Errors:
    for name in ("key", "path"):
        if not item.get(name):
            yield required(f"{path}.{name}")
    yield from not_reserved(f"{path}.path", item.get("path", ""))
    yield from file_mode(f"{path}.mode", item.get("mode"))


def downward_file(path: str, item: JSONObject) -> Errors:
    if not item.get("path"):
        yield required(f"{path}.path")
    yield from not_reserved(f"{path}.path", item.get("path", ""))
    if item.get("fieldRef") is not None:
        yield from object_field(f"{path}.fieldRef", item["fieldRef"], VOLUME_FIELDS)
        if item.get("resourceFieldRef") is not None:
            yield invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
    elif item.get("resourceFieldRef") is not None:
        yield from resource_field(f"{path}.resourceFieldRef", item["resourceFieldRef"], volume=True)
    else:
        yield required(path, "one of fieldRef and resourceFieldRef is required")
    yield from file_mode(f"{path}.mode", item.get("mode"))


def projected(path: str, volume: JSONObject, *, any_token_path: bool) -> Errors:
    yield from file_mode(f"{path}.defaultMode", volume.get("defaultMode"))
    taken: set[str] = set()
    for at, source in enumerate(volume.get("sources") or ()):
        here = f"{path}.sources[{at}]"
        for kind in ("secret", "configMap"):
            if source.get(kind) is not None:
                yield from _keys(path, f"{here}.{kind}", source[kind], taken)
        if source.get("downwardAPI") is not None:
            for item in source["downwardAPI"].get("items") or ():
                yield from downward_file(f"{here}.downwardAPI", item)
                if item.get("path"):
                    yield from _claim_path(path, item["path"], item["path"], taken)
        if source.get("serviceAccountToken") is not None:
            yield from _token(path, f"{here}.serviceAccountToken", source["serviceAccountToken"], any_token_path)
        if sum(value is not None for value in source.values()) > 1:
            yield forbidden(here, "may not specify more than 1 volume type per source")


def _claim_path(path: str, shown: str, target: str, taken: set[str]) -> Errors:
    if target in taken:
        yield invalid(path, shown, "conflicting duplicate paths")
    taken.add(target)


def _keys(volume_path: str, path: str, source: JSONObject, taken: set[str]) -> Errors:
    if not source.get("name"):
        yield required(f"{path}.name")
    for at, item in enumerate(source.get("items") or ()):
        yield from key_to_path(f"{path}.items[{at}]", item)
        if item.get("path"):
            yield from _claim_path(volume_path, source.get("name", ""), item["path"], taken)


def _token(volume_path: str, path: str, token: JSONObject, any_path: bool) -> Errors:
    seconds = token.get("expirationSeconds") or 0
    if seconds < 600:
        yield invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    if seconds > 1 << 32:
        yield invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
    if not token.get("path"):
        yield required(f"{volume_path}.path")
    elif not any_path:
        yield from not_reserved(f"{volume_path}.path", token["path"])
