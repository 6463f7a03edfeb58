"""Projected volumes and the files of downward API, ConfigMap and Secret volumes. Source: validateProjectionSources, validateKeyToPath."""

from __future__ import annotations

from kubeloop.apiserver.builtin.pods.environment import VOLUME_FIELDS, object_field, resource_field
from kubeloop.apiserver.builtin.pods.options import Errors, JSONObject
from kubeloop.apiserver.builtin.pods.paths import file_mode, not_reserved
from kubeloop.apiserver.builtin.signers import bundle_name, signer_name
from kubeloop.apiserver.validation.formats import each, one_of
from kubeloop.apiserver.validation.metadata import ANNOTATIONS_LIMIT
from kubeloop.apiserver.validation.selectors import label_selector
from kubeloop.meta.field_error import forbidden, invalid, required, too_long
from kubeloop.meta.names import annotations_size, qualified_name

_KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")


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
        if source.get("clusterTrustBundle") is not None:
            yield from _trust_bundle(path, f"{here}.clusterTrustBundle", source["clusterTrustBundle"], taken)
        if source.get("podCertificate") is not None:
            yield from _certificate(path, f"{here}.podCertificate", source["podCertificate"], taken)
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


def _trust_bundle(volume_path: str, path: str, source: JSONObject, taken: set[str]) -> Errors:
    name, signer = source.get("name"), source.get("signerName")
    if name is not None and signer is not None:
        yield invalid(path, source, "only one of name and signerName may be used")
    elif name is not None:
        if not name:
            yield required(f"{path}.name", "must be a valid object name")
        for message in bundle_name(name):
            yield invalid(f"{path}.name", name, f"not a valid clustertrustbundlename: {message}")
        if source.get("labelSelector") is not None:
            yield invalid(f"{path}.labelSelector", source["labelSelector"], "labelSelector must be unset if name is specified")
    elif signer is not None:
        if not signer:
            yield required(f"{path}.signerName", "must be a valid signer name")
        yield from signer_name(f"{path}.signerName", signer)
        yield from label_selector(f"{path}.labelSelector", source.get("labelSelector"))
    else:
        yield required(path, "either name or signerName must be specified")
    target = source.get("path", "")
    if not target:
        yield required(f"{path}.path")
    yield from not_reserved(f"{path}.path", target)
    yield from _claim_path(volume_path, target, target, taken)


def _certificate(volume_path: str, path: str, source: JSONObject, taken: set[str]) -> Errors:
    signer = source.get("signerName", "")
    yield from signer_name(f"{path}.signerName", signer)
    if (annotations := source.get("userAnnotations")) is not None:
        yield from _user_annotations(f"{path}.userAnnotations", annotations)
    yield from one_of(f"{path}.keyType", source.get("keyType", ""), _KEY_TYPES)
    if (seconds := source.get("maxExpirationSeconds")) is not None:
        most = 86400 if signer.partition("/")[0] == "kubernetes.io" or ".kubernetes.io/" in signer else 91 * 86400
        if seconds < 3600:
            yield invalid(f"{path}.maxExpirationSeconds", seconds, "if provided, maxExpirationSeconds must be >= 3600")
        if seconds > most:
            yield invalid(f"{path}.maxExpirationSeconds", seconds, f"if provided, maxExpirationSeconds must be <= {most}")
    targets = [name for name in ("credentialBundlePath", "keyPath", "certificateChainPath") if source.get(name)]
    for name in targets:
        yield from not_reserved(f"{path}.{name}", source[name])
        yield from _claim_path(volume_path, source[name], source[name], taken)
    if not targets:
        yield required(path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")


def _user_annotations(path: str, annotations: dict[str, str]) -> Errors:
    for key in annotations:
        lower = key.lower()
        faults = qualified_name(lower)
        if not lower:
            yield required(path)
        elif not faults and lower.count("/") != 1:
            faults = ['must be a domain-prefixed key (such as "acme.io/foo")']
        yield from each(path, lower, faults if lower else [])
    if annotations_size(annotations) > ANNOTATIONS_LIMIT:
        yield too_long(path, ANNOTATIONS_LIMIT)
