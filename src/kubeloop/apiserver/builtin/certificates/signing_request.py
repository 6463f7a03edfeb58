"""Strategy of CertificateSigningRequests.

Source: pkg/apis/certificates/validation, pkg/registry/certificates/certificates/strategy.go.
"""

from __future__ import annotations

import copy
from typing import Any

from kubeloop.apiserver.builtin.certificates.pem import certificate_error, request_error
from kubeloop.apiserver.builtin.difference import difference
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import check_one_of
from kubeloop.meta.field_error import Errors, FieldError, duplicate, forbidden, invalid, required, too_long
from kubeloop.meta.names import dns1123_label, dns1123_subdomain
from kubeloop.types import JSONObject

_STRUCT = "certificates.CertificateSigningRequestCondition"
_USAGES = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only",
    "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement",
    "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping",
)  # fmt: skip
_LEGACY = "kubernetes.io/legacy-unknown"
_DECISIONS = ("Approved", "Denied")
_CONDITIONS = "status.conditions"
_LONGEST_DOMAIN, _LONGEST_SIGNER = 253, 253 + 1 + 253 + 63 + 1


class SigningRequestStrategy(BuiltinStrategy):
    """Strategy of CertificateSigningRequests.

    Not guaranteed
        The checks of admission plug-ins: permissions to sign and approve, and groups in the subject.
    """

    metadata_checks_on_update = ("create", "update")
    metadata_checks_on_status = ("create", "update")

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return []

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        super().prepare_create(context, obj)
        spec = obj["spec"]
        for name in ("uid", "extra", "username", "groups"):
            spec.pop(name, None)
        if context.user.name:
            spec["username"] = context.user.name
        if context.user.uid:
            spec["uid"] = context.user.uid
        if context.user.groups:
            spec["groups"] = list(context.user.groups)
        if context.user.extra:
            spec["extra"] = {name: list(values) for name, values in context.user.extra.items()}

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_request(obj, {}))

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_update(context, obj, old)
        obj["spec"] = copy.deepcopy(old["spec"])

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_request(obj, old))

    def prepare_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_status_update(context, obj, old)
        status, before = obj.setdefault("status", {}), _conditions(old)
        conditions = status.get("conditions") or []
        if context.subresource == "approval":
            status = obj["status"] = {**copy.deepcopy(old.get("status") or {}), "conditions": conditions}
        else:
            _keep_decisions(conditions, before)
        for one in conditions:
            _stamp(one, before, context.time)
        if not conditions:
            status.pop("conditions", None)

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return [*_request(obj, old), *_transition(obj, old, context.subresource)]


def _conditions(obj: JSONObject) -> list[JSONObject]:
    result: list[JSONObject] = (obj.get("status") or {}).get("conditions") or []
    return result


def _of_type(conditions: list[JSONObject], kind: str) -> list[JSONObject]:
    return [one for one in conditions if one.get("type") == kind]


def _keep_decisions(conditions: list[JSONObject], before: list[JSONObject]) -> None:
    """Restore the conditions Approved and Denied, which a write of the status cannot change."""
    for kind in _DECISIONS:
        places = [index for index, one in enumerate(conditions) if one.get("type") == kind]
        known = _of_type(before, kind)
        if len(places) == len(known):
            for index, one in zip(places, known, strict=True):
                conditions[index] = copy.deepcopy(one)


def _stamp(condition: JSONObject, before: list[JSONObject], time: str) -> None:
    if not condition.get("lastUpdateTime"):
        condition["lastUpdateTime"] = time
    if not condition.get("lastTransitionTime"):
        same = (one for one in before if all(one.get(name) == condition.get(name) for name in ("type", "status")))
        condition["lastTransitionTime"] = next((one["lastTransitionTime"] for one in same if one.get("lastTransitionTime")), time)


def _request(obj: JSONObject, old: JSONObject) -> Errors:
    """Validate a request. Errors that the stored object ``old`` has already are accepted."""
    spec, before = obj["spec"], old.get("spec") or {}
    if error := request_error(spec.get("request")):
        yield invalid("spec.request", spec.get("request"), error)
    usages, signer = spec.get("usages") or [], spec.get("signerName", "")
    if not usages:
        yield required("spec.usages")
    if spec != before:
        for index, usage in enumerate(usages):
            yield from check_one_of(f"spec.usages[{index}]", usage, _USAGES)
        for index, usage in enumerate(usages):
            if usage in usages[:index]:
                yield duplicate(f"spec.usages[{index}]", usage)
    if signer == _LEGACY and spec != before:
        yield invalid("spec.signerName", signer, "the legacy signerName is not allowed via this API version")
    else:
        yield from _signer("spec.signerName", signer)
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < 600:
        yield invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 600 seconds (10 minutes)")
    yield from _conditions_hold(_conditions(obj))
    if error := certificate_error((obj.get("status") or {}).get("certificate")):
        yield invalid("status.certificate", "<certificate data>", error)


def _signer(path: str, name: str) -> Errors:
    if not name:
        yield required(path)
        return
    if name.count("/") != 1:
        yield invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
        return
    domain, _, rest = name.partition("/")
    if len(domain) > _LONGEST_DOMAIN:
        yield too_long(path, _LONGEST_DOMAIN)
    yield from _labels(path, domain, dns1123_label)
    if "." not in domain:
        yield invalid(path, domain, "should be a domain with at least two segments separated by dots")
    yield from _labels(path, rest, dns1123_subdomain)
    if len(name) > _LONGEST_SIGNER:
        yield too_long(path, _LONGEST_SIGNER)


def _labels(path: str, value: str, rule: Any) -> Errors:
    """Yield an error for the first invalid label of a domain."""
    for label in value.split("."):
        if errors := rule(label):
            for error in errors:
                yield invalid(path, value, f'validating label "{label}": {error}')
            return


def _conditions_hold(conditions: list[JSONObject]) -> Errors:
    seen: list[str] = []
    for index, one in enumerate(conditions):
        path, kind, status = f"{_CONDITIONS}[{index}]", one.get("type", ""), one.get("status", "")
        if not kind:
            yield required(f"{path}.type")
        if not status:
            yield required(f"{path}.status")
        else:
            yield from check_one_of(
                f"{path}.status", status, ("True",) if kind in (*_DECISIONS, "Failed") else ("False", "True", "Unknown")
            )
        if kind in _DECISIONS and any(other in seen for other in _DECISIONS if other != kind):
            yield invalid(_CONDITIONS, kind, "Approved and Denied conditions are mutually exclusive")
        if kind in seen:
            yield duplicate(f"{path}.type", kind)
        seen.append(kind)


def _transition(obj: JSONObject, old: JSONObject, subresource: str) -> Errors:
    """Check that each subresource changes only its part: approval the decisions, status the rest."""
    now, before = _conditions(obj), _conditions(old)
    for kind in (*_DECISIONS, "Failed"):
        if len(_of_type(now, kind)) < len(_of_type(before, kind)):
            yield forbidden(_CONDITIONS, f'updates may not remove a condition of type "{kind}"')
    if subresource != "approval":
        for kind in _DECISIONS:
            was, is_ = _of_type(before, kind), _of_type(now, kind)
            if len(is_) > len(was):
                yield forbidden(_CONDITIONS, f'updates may not add a condition of type "{kind}"')
            elif len(is_) == len(was) and is_ != was:
                yield forbidden(_CONDITIONS, f'updates may not modify a condition of type "{kind}"\n{difference(_STRUCT, was, is_)}')
    issued, issued_before = ((one.get("status") or {}).get("certificate") for one in (obj, old))
    if issued_before and issued != issued_before:
        yield forbidden("status.certificate", "updates may not modify existing certificate content")
