"""Validates selectors and pod templates of workloads. Source: pkg/apis/apps/validation."""

from __future__ import annotations

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.options import PodOptions, deletion_cost_fits
from kubeloop.apiserver.builtin.pods.security import host_sysctl_error
from kubeloop.apiserver.builtin.pods.spec import validate_pod_template
from kubeloop.apiserver.builtin.pods.warnings import pod_warnings
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import check_not_negative, check_one_of
from kubeloop.apiserver.validation.metadata import is_empty, matches, validate_label_selector
from kubeloop.meta.field_error import Errors, forbidden, invalid, required
from kubeloop.meta.names import dns1123_label
from kubeloop.types import JSONObject


def template_options(old: JSONObject | None) -> PodOptions:
    """Return validation options that accept invalid values which the template of the stored object already contains."""
    if old is None:
        return PodOptions()
    spec = old.get("spec") or {}
    sysctls = (spec.get("securityContext") or {}).get("sysctls") or ()
    return PodOptions(
        any_deletion_cost=not deletion_cost_fits((old.get("metadata") or {}).get("annotations") or {}),
        host_sysctls=any(host_sysctl_error(one.get("name", ""), spec) for one in sysctls),
    )


def validate_selector_and_template(spec: JSONObject, kind: str, options: PodOptions) -> Errors:
    """Validate selector and template of a Deployment or ReplicaSet. ``kind`` appears in the message about deadlines."""
    selector = spec.get("selector")
    errors = list(validate_label_selector("spec.selector", selector))
    if selector is None:
        yield required("spec.selector")
    else:
        yield from errors
        if is_empty(selector):
            yield invalid("spec.selector", selector, "empty selector is invalid for deployment")
    if errors:
        yield invalid("spec.selector", selector, "invalid label selector")
        return
    template = spec.get("template") or {}
    yield from check_selects_template(selector, template)
    yield from validate_pod_template("spec.template", template, options)
    yield from check_always_restarts(template, kind)


def check_selects_template(selector: JSONObject | None, template: JSONObject) -> Errors:
    """Check that a selector matches the labels of its template."""
    labels = (template.get("metadata") or {}).get("labels")
    if selector is None or not matches(selector, labels or {}):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def check_always_restarts(template: JSONObject, kind: str) -> Errors:
    """Check that the restart policy of a template is Always, and that it has no activeDeadlineSeconds. ``kind`` is for the message."""
    pod = template.get("spec") or {}
    yield from check_one_of("spec.template.spec.restartPolicy", pod.get("restartPolicy", ""), ("Always",))
    if pod.get("activeDeadlineSeconds") is not None:
        yield forbidden("spec.template.spec.activeDeadlineSeconds", f"activeDeadlineSeconds in {kind} is not Supported")


def check_not_negative_counters(status: JSONObject, *names: str) -> Errors:
    """Check that counters of a status are not negative."""
    for name in names:
        yield from check_not_negative(f"status.{name}", status.get(name))


def check_not_greater(status: JSONObject, name: str, limit: str, detail: str) -> Errors:
    """Check that one counter of a status is at most another.

    Args:
        status: The status.
        name: Field name of the counter.
        limit: Field name of its maximum.
        detail: The error message.

    Returns:
        An error at ``status.NAME``, or none.
    """
    if status.get(name, 0) > status.get(limit, 0):
        yield invalid(f"status.{name}", status.get(name, 0), detail)


def check_collision_count(status: JSONObject, old: JSONObject) -> Errors:
    """Check that the count of name collisions does not decrease."""
    now, before = status.get("collisionCount"), old.get("collisionCount")
    if before is not None and (now is None or now < before):
        yield invalid("status.collisionCount", now or 0, "cannot be decremented")


class TemplateStrategy(BuiltinStrategy):
    """Base class for kinds with a pod template at ``spec.template``."""

    #: Whether to warn about a name that is not a DNS label: it becomes a part of pod names.
    warns_about_name = False

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        messages = []
        name = obj["metadata"].get("name", "")
        if self.warns_about_name and (errors := dns1123_label(name)):
            messages.append(
                "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
                f"a DNS label is recommended: [{' '.join(errors)}]"
            )
        return messages + self.template_warnings(obj)

    def template_warnings(self, obj: JSONObject) -> list[str]:
        """Return the warnings about the pod template."""
        template = obj["spec"].get("template") or {}
        return pod_warnings("spec.template", template.get("metadata") or {}, template.get("spec") or {})

    def warnings_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[str]:
        changed = obj["metadata"].get("generation") != old["metadata"].get("generation")
        return self.template_warnings(obj) if changed else []
