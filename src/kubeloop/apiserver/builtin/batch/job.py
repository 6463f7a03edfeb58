"""Strategy of Jobs. Source: pkg/apis/batch/validation, pkg/registry/batch/job."""

from __future__ import annotations

import copy

from kubeloop.apiserver.builtin.apps.template import TemplateStrategy, template_options
from kubeloop.apiserver.builtin.batch.job_status import InvalidIndexes, check_indexes, validate_status_update
from kubeloop.apiserver.builtin.pods.options import PodOptions
from kubeloop.apiserver.builtin.pods.spec import validate_pod_template
from kubeloop.apiserver.builtin.pods.warnings import pod_warnings
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import check_immutable, check_not_negative, check_one_of, each
from kubeloop.apiserver.validation.metadata import matches, validate_label_selector
from kubeloop.meta.field_error import OMITTED, Errors, FieldError, FieldErrorType, duplicate, invalid, required, too_long
from kubeloop.meta.names import dns1123_label, dns1123_subdomain, http_path, qualified_name
from kubeloop.types import JSONObject

# podFailurePolicy and successPolicy. Source: pkg/apis/batch/validation.


_LONGEST_INDEXES = 64 * 1024
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")


def _too_many(path: str, count: int, limit: int) -> Errors:
    if count > limit:
        yield FieldError(FieldErrorType.TOO_MANY, path, count, f"must have at most {limit} items")


def validate_failure_policy(path: str, spec: JSONObject) -> Errors:
    """Validate the podFailurePolicy of a spec."""
    rules = spec["podFailurePolicy"].get("rules") or []
    yield from _too_many(f"{path}.rules", len(rules), 20)
    pod = (spec.get("template") or {}).get("spec") or {}
    names = {one.get("name", "") for kind in ("containers", "initContainers") for one in pod.get(kind) or ()}
    for index, rule in enumerate(rules):
        yield from _failure_rule(f"{path}.rules[{index}]", rule, spec, names)


def _failure_rule(path: str, rule: JSONObject, spec: JSONObject, names: set[str]) -> Errors:
    action, codes, conditions = rule.get("action", ""), rule.get("onExitCodes"), rule.get("onPodConditions") or []
    if not action:
        yield required(f"{path}.action", 'valid values: ["Count" "FailIndex" "FailJob" "Ignore"]')
    elif action == "FailIndex":
        if spec.get("backoffLimitPerIndex") is None:
            yield invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set")
    else:
        yield from check_one_of(f"{path}.action", action, _ACTIONS)
    if codes is not None:
        yield from _exit_codes(f"{path}.onExitCodes", codes, names)
    yield from _too_many(f"{path}.onPodConditions", len(conditions), 20)
    for index, pattern in enumerate(conditions):
        here = f"{path}.onPodConditions[{index}]"
        yield from each(f"{here}.type", pattern.get("type", ""), qualified_name(pattern.get("type", "")))
        yield from check_one_of(f"{here}.status", pattern.get("status", ""), ("False", "True", "Unknown"))
    if codes is not None and conditions:
        yield _without_value(path, "specifying both OnExitCodes and OnPodConditions is not supported")
    if codes is None and not conditions:
        yield _without_value(path, "specifying one of OnExitCodes and OnPodConditions is required")


def _without_value(path: str, detail: str) -> FieldError:
    """Return an error without the invalid value, which is too large to show."""
    return FieldError(FieldErrorType.INVALID, path, OMITTED, detail)


def _exit_codes(path: str, codes: JSONObject, names: set[str]) -> Errors:
    operator, values, container = codes.get("operator", ""), codes.get("values") or [], codes.get("containerName")
    if not operator:
        yield required(f"{path}.operator", 'valid values: ["In" "NotIn"]')
    else:
        yield from check_one_of(f"{path}.operator", operator, ("In", "NotIn"))
    if container is not None and container not in names:
        detail = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{path}.containerName", container, detail)
    if not values:
        yield invalid(f"{path}.values", codes.get("values"), "at least one value is required")
    yield from _too_many(f"{path}.values", len(values), 255)
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            yield invalid(f"{path}.values[{index}]", 0, "must not be 0 for the In operator")
        if value in values[:index]:
            yield duplicate(f"{path}.values[{index}]", value)
    if sorted(values) != values:
        yield invalid(f"{path}.values", values, "must be ordered")


def validate_success_policy(path: str, spec: JSONObject) -> Errors:
    """Validate the successPolicy of a spec."""
    if spec.get("completionMode") != "Indexed":
        yield invalid(path, spec["successPolicy"], "requires indexed completion mode")
        return
    rules, completions = spec["successPolicy"].get("rules") or [], spec.get("completions") or 0
    if not rules:
        yield required(f"{path}.rules", "at least one rules must be specified when the successPolicy is specified")
    yield from _too_many(f"{path}.rules", len(rules), 20)
    for index, rule in enumerate(rules):
        here, count, indexes = f"{path}.rules[{index}]", rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            yield required(here, "at least one of succeededCount or succeededIndexes must be specified")
        if indexes is not None:
            yield from _indexes(f"{here}.succeededIndexes", indexes, completions)
        if count is not None:
            yield from _count(f"{here}.succeededCount", count, indexes, completions)


def _indexes(path: str, indexes: str, completions: int) -> Errors:
    if len(indexes.encode()) > _LONGEST_INDEXES:
        yield too_long(path, _LONGEST_INDEXES)
    try:
        check_indexes(indexes, completions)
    except InvalidIndexes as error:
        yield invalid(path, indexes, f"error parsing succeededIndexes: {error}")


def _count(path: str, count: int, indexes: str | None, completions: int) -> Errors:
    yield from check_not_negative(path, count)
    if count > completions:
        yield invalid(path, count, f"must be less than or equal to {completions} (the number of specified completions)")
    if indexes is None:
        return
    try:
        total = check_indexes(indexes, completions)
    except InvalidIndexes:
        total = 0
    if count > total:
        yield invalid(path, count, f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)")


_UID, _NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
_OLD_UID, _OLD_NAME = "controller-uid", "job-name"
_MANY_COMPLETIONS, _MANY_PODS = 100_000, 10_000
_MANY_INDEXES = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to "
    "track completedIndexes when a big number of indexes fail"
)

_PODS_STAY = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


def job_warnings(path: str, spec: JSONObject) -> list[str]:
    """Return the warnings about the spec of a Job. Source: pkg/api/job/warnings.go."""
    size = spec.get("completions") or 0, spec.get("parallelism") or 0
    many = spec.get("completionMode") == "Indexed" and size[0] > _MANY_COMPLETIONS and size[1] > _MANY_PODS
    messages = [f"{path}: {_MANY_INDEXES}"] if many else []
    template = spec.get("template") or {}
    return messages + pod_warnings(f"{path}.template", template.get("metadata") or {}, template.get("spec") or {})


class JobStrategy(TemplateStrategy):
    """Strategy of Jobs."""

    warns_about_name = True

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        super().prepare_create(context, obj)
        if obj["spec"].get("manualSelector"):
            return
        shared = _shares_labels(context, obj)
        _generate_selector(obj)
        if shared:
            obj["metadata"]["labels"] = dict(obj["spec"]["template"]["metadata"]["labels"])

    def errors_on_create(self, context: WriteRequest, obj: JSONObject, *, namespaced: bool) -> list[FieldError]:
        errors = super().errors_on_create(context, obj, namespaced=namespaced)
        if not errors:
            # Upstream sets defaults once more when it reads a stored object, and by then the template has labels.
            self.default(obj)
        return errors

    def template_warnings(self, obj: JSONObject) -> list[str]:
        return job_warnings("spec", obj["spec"])

    def warnings_on_delete(self, *, policy_named: bool) -> list[str]:
        return [] if policy_named else [_PODS_STAY]

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_job(obj, template_options(None)))

    def errors_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject, *, namespaced: bool) -> list[FieldError]:
        """Return the errors of an update (see ``Strategy.errors_on_update``).

        A job whose labels come from its template is validated with the labels of the template.

        Args:
            context: The write.
            obj: The new object.
            old: The stored object.
            namespaced: Whether the kind has namespaces.

        Returns:
            The errors, in upstream's order.
        """
        options = template_options(old["spec"].get("template"))
        whole = [*self._object_meta(obj, namespaced), *_job(obj, options)]
        changes = [*self._object_meta_update(obj, old), *_selected_spec("spec", obj["spec"], options), *_changes(obj, old)]
        return [*self._common_update(obj, old, namespaced), *whole, *changes]

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(validate_status_update(obj, old))

    def selectable_fields(self, obj: JSONObject) -> dict[str, str]:
        return {"status.successful": str((obj.get("status") or {}).get("succeeded", 0))}


def _shares_labels(context: WriteRequest, obj: JSONObject) -> bool:
    """Return whether job and template share their labels: in a job that was sent without labels, upstream uses one map for both."""
    sent = context.sent if isinstance(context.sent, dict) else {}
    labels = obj["metadata"].get("labels")
    is_default = bool(labels) and not (sent.get("metadata") or {}).get("labels")
    return is_default and labels == ((obj["spec"].get("template") or {}).get("metadata") or {}).get("labels")


def _generate_selector(obj: JSONObject) -> None:
    """Generate the selector: pods of a job have its uid as a label. The labels without a prefix are for old clients."""
    metadata, spec = obj["metadata"], obj["spec"]
    template = spec.setdefault("template", {}).setdefault("metadata", {})
    own = {_OLD_NAME: metadata.get("name", ""), _NAME: metadata.get("name", "")}
    own |= {_OLD_UID: metadata.get("uid", ""), _UID: metadata.get("uid", "")}
    template["labels"] = {**own, **(template.get("labels") or {})}
    selector = spec.get("selector") or {}
    spec["selector"] = {**selector, "matchLabels": {_UID: metadata.get("uid", ""), **(selector.get("matchLabels") or {})}}


def _job(job: JSONObject, options: PodOptions) -> Errors:
    spec, metadata = job["spec"], job["metadata"]
    yield from _generated_selector(job)
    yield from _selected_spec("spec", spec, options)
    completions = spec.get("completions")
    if spec.get("completionMode") == "Indexed" and completions:
        name = f"{metadata.get('name', '')}-{completions - 1}"
        if dns1123_label(name):
            yield invalid("metadata.name", metadata.get("name", ""), f"will not able to create pod with invalid DNS label: {name}")


def _generated_selector(job: JSONObject) -> Errors:
    spec, metadata = job["spec"], job["metadata"]
    if spec.get("manualSelector") or spec.get("selector") is None:
        return
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    expected = {_OLD_UID: metadata.get("uid", ""), _OLD_NAME: metadata.get("name", "")}
    expected |= {_UID: metadata.get("uid", ""), _NAME: metadata.get("name", "")}
    for key, value in expected.items():
        path = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            yield required(path, f"must be '{value}'")
        elif labels[key] != value:
            yield invalid(path, dict(sorted(labels.items())), f"must be '{value}'")
    selector = spec["selector"]
    if not list(validate_label_selector("", selector)) and not matches(selector, expected):
        yield invalid("spec.selector", selector, "`selector` not auto-generated")


def _selected_spec(path: str, spec: JSONObject, options: PodOptions) -> Errors:
    yield from validate_job_spec(path, spec, options)
    selector = spec.get("selector")
    errors = list(validate_label_selector(f"{path}.selector", selector))
    if selector is None:
        yield required(f"{path}.selector")
    yield from errors
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if not errors and (selector is None or not matches(selector, labels or {})):
        yield invalid(f"{path}.template.metadata.labels", labels, "`selector` does not match template `labels`")


def validate_job_spec(path: str, spec: JSONObject, options: PodOptions) -> Errors:
    """Validate the fields that jobs and job templates share."""
    for name in ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished", "backoffLimitPerIndex"):
        yield from check_not_negative(f"{path}.{name}", spec.get(name))
    if spec.get("maxFailedIndexes") is not None:
        yield from check_not_negative(f"{path}.maxFailedIndexes", spec["maxFailedIndexes"])
        if spec.get("backoffLimitPerIndex") is None:
            yield required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if spec.get("managedBy") is not None:
        yield from validate_domain_prefixed_path(f"{path}.managedBy", spec["managedBy"])
        if len(spec["managedBy"]) > 63:
            yield too_long(f"{path}.managedBy", 63)
    yield from _completion_mode(path, spec)
    if spec.get("podFailurePolicy") is not None:
        yield from validate_failure_policy(f"{path}.podFailurePolicy", spec)
    if spec.get("successPolicy") is not None:
        yield from validate_success_policy(f"{path}.successPolicy", spec)
    if spec.get("podReplacementPolicy") is not None:
        known = ("Failed", "TerminatingOrFailed") if spec.get("podFailurePolicy") is None else ("Failed",)
        yield from check_one_of(f"{path}.podReplacementPolicy", spec["podReplacementPolicy"], known)
    template = spec.get("template") or {}
    yield from validate_pod_template(f"{path}.template", template, options)
    yield from _restart_policy(f"{path}.template.spec.restartPolicy", spec, (template.get("spec") or {}).get("restartPolicy", ""))


def validate_domain_prefixed_path(path: str, value: str) -> Errors:
    """Validate a path such as ``acme.io/foo``. Source: IsDomainPrefixedPath."""
    if not value:
        yield required(path)
        return
    host, _, rest = value.partition("/")
    if not host or not rest:
        yield invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    yield from each(path, host, dns1123_subdomain(host))
    yield from each(path, rest, http_path(rest))


def _completion_mode(path: str, spec: JSONObject) -> Errors:
    mode, completions, parallelism = spec.get("completionMode"), spec.get("completions"), spec.get("parallelism")
    failed, per_index = spec.get("maxFailedIndexes"), spec.get("backoffLimitPerIndex")
    if mode is not None:
        yield from check_one_of(f"{path}.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed":
        if completions is None:
            yield required(f"{path}.completions", "when completion mode is Indexed")
        if (parallelism or 0) > 100_000:
            yield invalid(f"{path}.parallelism", parallelism, "must be less than or equal to 100000 when completion mode is Indexed")
        if completions is not None and failed is not None and failed > completions:
            yield invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions")
        if (failed or 0) > 100_000:
            yield invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to 100000")
        if (completions or 0) > _MANY_COMPLETIONS and per_index is not None:
            yield from _many_completions(path, parallelism, failed)
    elif mode in (None, "NonIndexed"):
        for name, value in (("backoffLimitPerIndex", per_index), ("maxFailedIndexes", failed)):
            if value is not None:
                yield invalid(f"{path}.{name}", value, "requires indexed completion mode")


def _many_completions(path: str, parallelism: int | None, failed: int | None) -> Errors:
    message = "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index"
    if failed is None:
        yield required(f"{path}.maxFailedIndexes", "must be specified when completions is above 100000")
    for name, value in (("parallelism", parallelism), ("maxFailedIndexes", failed)):
        if (value or 0) > 10_000:
            yield invalid(f"{path}.{name}", value, message)


def _restart_policy(path: str, spec: JSONObject, policy: str) -> Errors:
    if policy in ("Always", ""):
        yield required(path, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield from check_one_of(path, policy, ("OnFailure", "Never"))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        yield invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _changes(job: JSONObject, old: JSONObject) -> Errors:
    spec, before = job["spec"], old["spec"]
    completions = spec.get("completions")
    if spec.get("completionMode") != "Indexed":
        yield from check_immutable("spec.completions", completions, before.get("completions"))
    elif completions is not None and completions not in (before.get("completions"), spec.get("parallelism")):
        yield invalid("spec.completions", completions, "can only be modified in tandem with spec.parallelism")
    yield from check_immutable("spec.selector", spec.get("selector"), before.get("selector"))
    yield from _template_changes(spec.get("template") or {}, old)
    for name in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        yield from check_immutable(f"spec.{name}", spec.get(name), before.get(name))


def _template_changes(template: JSONObject, old: JSONObject) -> Errors:
    """Check the changes of a template. A suspended job without pods may change scheduling and resources of its pods."""
    before = copy.deepcopy(old["spec"].get("template") or {})
    status = old.get("status") or {}
    suspended = bool(old["spec"].get("suspend"))
    idle = status.get("startTime") is None or any(
        one.get("type") == "Suspended" and one.get("status") == "True" for one in status.get("conditions") or ()
    )
    path = "spec.template"
    if suspended and idle and not status.get("active"):
        before["metadata"] = copy.deepcopy(template.get("metadata") or {})
        pod, pod_before = template.get("spec") or {}, before.setdefault("spec", {})
        affinity = {**(pod_before.get("affinity") or {}), "nodeAffinity": (pod.get("affinity") or {}).get("nodeAffinity")}
        affinity = {name: value for name, value in affinity.items() if value is not None}
        for name, value in (("affinity", affinity or pod.get("affinity")), *((name, pod.get(name)) for name in _STEERED)):
            if value is None:
                pod_before.pop(name, None)
            else:
                pod_before[name] = value
        for kind in ("containers", "initContainers"):
            for container, container_before in zip(pod.get(kind) or (), pod_before.get(kind) or (), strict=False):
                if container.get("name") == container_before.get("name"):
                    container_before["resources"] = container.get("resources") or {}
        if pod != pod_before:
            yield from check_immutable("spec.template.spec", pod, pod_before)
        return
    yield from check_immutable(path, template, before)


_STEERED = ("nodeSelector", "tolerations", "schedulingGates")
