"""Policies of Jobs: the action for a failed pod (podFailurePolicy), and whether enough indexes have succeeded (successPolicy).

Source: Kubernetes pkg/controller/job/pod_failure_policy.go and success_policy.go; KEP-3329, KEP-3998.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kubeloop.api.batch.v1 import PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule, SuccessPolicy
from kubeloop.api.core.v1 import ContainerStatus, Pod
from kubeloop.controlplane.workloads.job_indexes import IndexRanges


@dataclass(frozen=True, slots=True)
class FailureMatch:
    """The result of matching a failed pod with a pod failure policy.

    Args:
        action: The action of the matching rule; empty if no rule matches.
        message: Why the Job fails, for the action ``FailJob``.
    """

    action: str = ""
    message: str = ""

    @property
    def counts(self) -> bool:
        """Whether the failure counts towards the back-off limits."""
        return self.action != "Ignore"


def match_failure_policy(policy: PodFailurePolicy | None, pod: Pod) -> FailureMatch:
    """Return the result of the first rule of a pod failure policy that matches a failed pod."""
    for number, rule in enumerate(policy.rules if policy is not None else ()):
        cause = _cause(rule, pod)
        if cause and rule.action in ("Ignore", "FailIndex", "Count", "FailJob"):
            message = f"{cause} matching {rule.action} rule at index {number}" if rule.action == "FailJob" else ""
            return FailureMatch(rule.action, message)
    return FailureMatch()


def _cause(rule: PodFailurePolicyRule, pod: Pod) -> str:
    """Return a text about why a rule matches a pod; empty if it does not match."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if rule.on_exit_codes is not None:
        for statuses in (pod.status.container_statuses, pod.status.init_container_statuses):
            if (status := _matching_container(statuses, rule.on_exit_codes)) is not None:
                assert status.state.terminated is not None
                return f"Container {status.name} for pod {name} failed with exit code {status.state.terminated.exit_code}"
        return ""
    for condition in pod.status.conditions:
        if any((condition.type, condition.status) == (pattern.type, pattern.status) for pattern in rule.on_pod_conditions):
            return f"Pod {name} has condition {condition.type}"
    return ""


def _matching_container(statuses: Iterable[ContainerStatus], requirement: PodFailurePolicyOnExitCodesRequirement) -> ContainerStatus | None:
    for status in statuses:
        terminated = status.state.terminated
        if terminated is None or not terminated.exit_code or requirement.container_name not in (None, status.name):
            continue
        if requirement.operator in ("In", "NotIn") and (terminated.exit_code in requirement.values) == (requirement.operator == "In"):
            return status
    return None


def match_success_policy(policy: SuccessPolicy | None, completions: int, succeeded: IndexRanges) -> str:
    """Return the message about the first rule that the succeeded indexes satisfy; empty if they satisfy none."""
    if policy is None or not succeeded:
        return ""
    for number, rule in enumerate(policy.rules):
        if rule.succeeded_indexes is not None:
            required = IndexRanges.parse(rule.succeeded_indexes, completions)
            matching = required.overlap(succeeded)
            met = bool(required) and (matching == len(required) or (rule.succeeded_count is not None and matching >= rule.succeeded_count))
        else:
            met = rule.succeeded_count is not None and len(succeeded) >= rule.succeeded_count
        if met:
            return f"Matched rules at index {number}"
    return ""
