"""PriorityLevelConfigurations: how many requests of a kind are served at once. Source: pkg/apis/flowcontrol/validation."""

from __future__ import annotations

import math

from kubeloop.apiserver.builtin.bootstrap.flow_control import mandatory
from kubeloop.apiserver.builtin.flow_control import conditions_of
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import one_of
from kubeloop.meta.field_error import Errors, FieldError, forbidden, invalid, required
from kubeloop.types import JSONObject

_MOST_QUEUES = 10_000_000
#: Bits of the hash that deals hands of queues (shufflesharding.MaxHashBits).
_HASH_BITS = 60
_OLD_ANNOTATION = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"


class PriorityLevelStrategy(BuiltinStrategy):
    metadata_checks_on_update = ("create",)
    metadata_checks_on_status = ()
    status_keeps_metadata = True

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        metadata, spec = obj["metadata"], obj["spec"]
        name, found = metadata.get("name", ""), []
        if _OLD_ANNOTATION in (metadata.get("annotations") or {}):
            found.append(forbidden("metadata.annotations", f"annotation '{_OLD_ANNOTATION}' is forbidden"))
        return [*found, *_spec(name, spec), *_fixed(name, spec), *conditions_of(obj)]

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return self.validate_create(context, obj)

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(conditions_of(obj))


def _fixed(name: str, spec: JSONObject) -> Errors:
    """What Kubernetes relies on stays as it is, but for the numbers of the exempt level."""
    fixed = mandatory("prioritylevelconfigurations").get(name)
    if fixed is None:
        return
    if name == "exempt":
        if {**spec, "exempt": None} != {**fixed, "exempt": None}:
            yield invalid("spec", spec, f"spec of '{name}' except the 'spec.exempt' field must equal the fixed value")
    elif spec != fixed:
        yield invalid("spec", spec, f"spec of '{name}' must equal the fixed value")


def _spec(name: str, spec: JSONObject) -> Errors:
    kind, exempt, limited = spec.get("type", ""), spec.get("exempt"), spec.get("limited")
    if (name == "exempt") != (kind == "Exempt"):
        yield invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'")
    if kind == "Exempt":
        if limited is not None:
            yield forbidden("spec.limited", "must be nil if the type is not Limited")
        if exempt is not None:
            yield from _shares("spec.exempt", exempt)
            yield from _percentage("spec.exempt", exempt)
    elif kind == "Limited":
        if exempt is not None:
            yield forbidden("spec.exempt", "must be nil if the type is Limited")
        if limited is None:
            yield required("spec.limited", "must not be empty when type is Limited")
        else:
            yield from _limited("spec.limited", limited)
    elif not kind:
        yield required("spec.type")
    else:
        yield from one_of("spec.type", kind, ("Exempt", "Limited"))


def _shares(path: str, level: JSONObject) -> Errors:
    shares = level.get("nominalConcurrencyShares")
    if shares is not None and shares < 0:
        yield invalid(f"{path}.nominalConcurrencyShares", shares, "must be a non-negative integer")


def _percentage(path: str, level: JSONObject) -> Errors:
    lendable = level.get("lendablePercent")
    if lendable is not None and not 0 <= lendable <= 100:
        yield invalid(f"{path}.lendablePercent", lendable, "must be between 0 and 100, inclusive")


def _limited(path: str, limited: JSONObject) -> Errors:
    yield from _shares(path, limited)
    response = limited.get("limitResponse") or {}
    here, kind, queuing = f"{path}.limitResponse", response.get("type", ""), response.get("queuing")
    if kind == "Reject":
        if queuing is not None:
            yield forbidden(f"{here}.queuing", "must be nil if limited.limitResponse.type is not Limited")
    elif kind == "Queue":
        if queuing is None:
            yield required(f"{here}.queuing", "must not be empty if limited.limitResponse.type is Limited")
        else:
            yield from _queuing(f"{here}.queuing", queuing)
    elif not kind:
        yield required(f"{here}.type")
    else:
        yield from one_of(f"{here}.type", kind, ("Queue", "Reject"))
    yield from _percentage(path, limited)
    borrowed = limited.get("borrowingLimitPercent")
    if borrowed is not None and borrowed < 0:
        yield invalid(f"{path}.borrowingLimitPercent", borrowed, "if specified, must be a non-negative integer")


def _queuing(path: str, queuing: JSONObject) -> Errors:
    length, queues, hand = (queuing.get(name, 0) for name in ("queueLengthLimit", "queues", "handSize"))
    if length <= 0:
        yield invalid(f"{path}.queueLengthLimit", length, "must be positive")
    if queues <= 0:
        yield invalid(f"{path}.queues", queues, "must be positive")
    elif queues > _MOST_QUEUES:
        yield invalid(f"{path}.queues", queues, f"must not be greater than {_MOST_QUEUES}")
    if hand <= 0:
        yield invalid(f"{path}.handSize", hand, "must be positive")
    elif hand > queues:
        yield invalid(f"{path}.handSize", hand, f"should not be greater than queues ({queues})")
    elif math.ceil(math.log2(queues) * hand) > _HASH_BITS:
        detail = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {_HASH_BITS}"
        yield invalid(f"{path}.handSize", hand, detail)
