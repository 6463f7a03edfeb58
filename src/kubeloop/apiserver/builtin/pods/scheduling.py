"""Validates node selection, affinity, tolerations and topology spread. Source: validateAffinity, ValidateTolerations."""

from __future__ import annotations

from kubeloop.apiserver.builtin.pods.options import PodOptions
from kubeloop.apiserver.validation.formats import check_one_of, check_positive, each, unsupported
from kubeloop.apiserver.validation.metadata import validate_label_selector
from kubeloop.meta.field_error import Errors, duplicate, forbidden, invalid, required
from kubeloop.meta.names import dns1123_label, dns1123_subdomain, label_value, qualified_name
from kubeloop.types import JSONObject

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_tolerations(path: str, field_value: list[JSONObject]) -> Errors:
    """Validate tolerations."""
    for index, one in enumerate(field_value):
        here = f"{path}[{index}]"
        key, operator, value, effect = one.get("key", ""), one.get("operator", ""), one.get("value", ""), one.get("effect", "")
        if key:
            yield from each(f"{here}.key", key, qualified_name(key))
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(f"{here}.operator", operator, detail)
        if one.get("tolerationSeconds") is not None and effect != "NoExecute":
            yield invalid(f"{here}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if operator in ("Equal", ""):
            if errors := label_value(value):
                yield invalid(f"{here}.operator", value, ";".join(errors))
        elif operator == "Exists":
            if value:
                yield invalid(f"{here}.operator", value, "value must be empty when `operator` is 'Exists'")
        else:
            known = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
            yield unsupported(f"{here}.operator", operator, known)
        if effect:
            yield from check_one_of(f"{here}.effect", effect, TAINT_EFFECTS)


def validate_affinity(path: str, value: JSONObject | None, options: PodOptions) -> Errors:
    """Validate the affinity of a pod."""
    if value is None:
        return
    if (node := value.get("nodeAffinity")) is not None:
        here = f"{path}.nodeAffinity"
        required_terms = node.get("requiredDuringSchedulingIgnoredDuringExecution")
        if required_terms is not None:
            yield from validate_node_selector(
                f"{here}.requiredDuringSchedulingIgnoredDuringExecution", required_terms, options.any_selector_value
            )
        for index, term in enumerate(node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
            below = f"{here}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
            yield from _weight(f"{below}.weight", term)
            # Upstream does not validate the values of a preference.
            yield from _node_term(f"{below}.preference", term.get("preference") or {}, any_value=True)
    for name in ("podAffinity", "podAntiAffinity"):
        if (pods := value.get(name)) is not None:
            yield from _pod_affinity(f"{path}.{name}", pods, options)


def _weight(path: str, term: JSONObject) -> Errors:
    if not 0 < term.get("weight", 0) <= 100:
        yield invalid(path, term.get("weight", 0), "must be in the range 1-100")


def validate_node_selector(path: str, selector: JSONObject, any_value: bool) -> Errors:
    """Validate a node selector. ``any_value`` skips the values of expressions."""
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from _node_term(f"{path}.nodeSelectorTerms[{index}]", term, any_value=any_value)


def _node_term(path: str, term: JSONObject, *, any_value: bool) -> Errors:
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        yield from _node_requirement(f"{path}.matchExpressions[{index}]", requirement, any_value)
    for index, requirement in enumerate(term.get("matchFields") or ()):
        yield from _node_field(f"{path}.matchFields[{index}]", requirement)


def _node_requirement(path: str, requirement: JSONObject, any_value: bool) -> Errors:
    operator, values, key = requirement.get("operator", ""), requirement.get("values") or [], requirement.get("key", "")
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    yield from each(f"{path}.key", key, qualified_name(key))
    if not any_value:
        for index, value in enumerate(values):
            yield from each(f"{path}.values[{index}]", value, label_value(value))


def _node_field(path: str, requirement: JSONObject) -> Errors:
    operator, values, key = requirement.get("operator", ""), requirement.get("values") or [], requirement.get("key", "")
    if operator not in ("In", "NotIn"):
        yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        yield required(f"{path}.values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
    if key != "metadata.name":
        yield invalid(f"{path}.key", key, "not a valid field selector key")
        return
    for index, value in enumerate(values):
        yield from each(f"{path}.values[{index}]", value, dns1123_subdomain(value))


def _pod_affinity(path: str, value: JSONObject, options: PodOptions) -> Errors:
    for index, term in enumerate(value.get("requiredDuringSchedulingIgnoredDuringExecution") or ()):
        yield from _pod_term(f"{path}.requiredDuringSchedulingIgnoredDuringExecution[{index}]", term, options)
    for index, weighted in enumerate(value.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        here = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        yield from _weight(f"{here}.weight", weighted)
        yield from _pod_term(f"{here}.podAffinityTerm", weighted.get("podAffinityTerm") or {}, options)


def _pod_term(path: str, term: JSONObject, options: PodOptions) -> Errors:
    for name in ("labelSelector", "namespaceSelector"):
        yield from validate_label_selector(f"{path}.{name}", term.get(name), any_value=options.any_selector_value)
    for name in term.get("namespaces") or ():
        yield from each(f"{path}.namespace", name, dns1123_label(name))
    yield from _label_keys(path, term.get("matchLabelKeys") or [], term.get("mismatchLabelKeys") or [], term.get("labelSelector"))
    key = term.get("topologyKey", "")
    if not key:
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from each(f"{path}.topologyKey", key, qualified_name(key))


def _label_keys(path: str, match: list[str], mismatch: list[str], selector: JSONObject | None) -> Errors:
    for name, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if keys and selector is None:
            yield forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set")
            continue
        for index, key in enumerate(keys):
            yield from each(f"{path}.{name}[{index}]", key, qualified_name(key))
    if selector is not None:
        # The server has merged the keys into the selector by now, so only a second occurrence is a conflict.
        seen = set(selector.get("matchLabels") or {})
        for expression in selector.get("matchExpressions") or ():
            key = expression.get("key", "")
            if key in match and key in seen:
                yield invalid(f"{path}[{len(match) - 1 - match[::-1].index(key)}]", key, "exists in both matchLabelKeys and labelSelector")
            seen.add(key)
    for index, key in enumerate(match):
        if key in mismatch:
            yield invalid(f"{path}.matchLabelKeys[{index}]", key, "exists in both matchLabelKeys and mismatchLabelKeys")


def validate_topology_spread(path: str, constraints: list[JSONObject], options: PodOptions) -> Errors:
    """Validate topology spread constraints."""
    for index, one in enumerate(constraints):
        here, action, key = f"{path}[{index}]", one.get("whenUnsatisfiable", ""), one.get("topologyKey", "")
        yield from check_positive(f"{here}.maxSkew", one.get("maxSkew", 0))
        if not key:
            yield required(f"{here}.topologyKey", "can not be empty")
        yield from check_one_of(f"{here}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))
        if any(other.get("topologyKey", "") == key and other.get("whenUnsatisfiable", "") == action for other in constraints[index + 1 :]):
            yield duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}")
        if (domains := one.get("minDomains")) is not None:
            yield from check_positive(f"{here}.minDomains", domains)
            if action != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                yield invalid(f"{here}.minDomains", domains, detail)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if one.get(name) is not None:
                yield from check_one_of(f"{here}.{name}", one[name], ("Honor", "Ignore"))
        yield from _label_keys(here, one.get("matchLabelKeys") or [], [], one.get("labelSelector"))
        yield from validate_label_selector(f"{here}.labelSelector", one.get("labelSelector"), any_value=options.any_selector_value)


def validate_scheduling_gates(path: str, gates: list[JSONObject]) -> Errors:
    """Validate scheduling gates."""
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        yield from each(f"{path}[{index}]", name, qualified_name(name))
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        seen.add(name)
