"""Evaluates the metrics of one autoscaler: the recommended number of replicas and the status of each metric, and the highest number.

Source: Kubernetes pkg/controller/podautoscaler/horizontal.go (computeReplicasForMetrics and the functions it calls).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import NamedTuple

from kubeloop.api.autoscaling.v2 import (
    ContainerResourceMetricStatus,
    ExternalMetricSource,
    ExternalMetricStatus,
    MetricIdentifier,
    MetricSpec,
    MetricStatus,
    MetricTarget,
    MetricValueStatus,
    ObjectMetricSource,
    ObjectMetricStatus,
    PodsMetricSource,
    PodsMetricStatus,
    ResourceMetricStatus,
)
from kubeloop.api.core.v1 import Pod
from kubeloop.controlplane.autoscaling.metrics import MetricsReader
from kubeloop.controlplane.autoscaling.replica_calculator import (
    MetricError,
    PodSample,
    Proposal,
    ReadinessRules,
    Tolerances,
    propose_by_average,
    propose_by_share,
    propose_by_utilization,
    propose_by_value,
)
from kubeloop.meta import KubeloopError, LabelSelector, Quantity, Selector
from kubeloop.meta.quantity import QuantityFormat

_LARGEST = 2**63 - 1


class MetricFailure(KubeloopError):
    """No number of replicas can be computed from a metric.

    Attributes:
        reason: Reason of the event and of the condition ScalingActive.
        cause: Text of the event; the condition quotes it.
    """

    def __init__(self, reason: str, cause: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.cause = reason, cause


class EvaluatedMetric(NamedTuple):
    """The number of replicas that one metric recommends, its name in conditions and events, and its entry in ``status.currentMetrics``."""

    replicas: int
    name: str
    status: MetricStatus


class Evaluation(NamedTuple):
    """The result of all metrics of an autoscaler.

    Attributes:
        highest: The metric that recommends the most replicas. None: all metrics failed, or some failed and the others would shrink the
            workload, so that it must not change.
        statuses: The status of each metric; empty for a failed metric.
        failures: The failed metrics, in the order of the spec.
    """

    highest: EvaluatedMetric | None
    statuses: list[MetricStatus]
    failures: list[MetricFailure]

    @property
    def error(self) -> str:
        """Summary of the failures, with upstream's text."""
        return f"invalid metrics ({len(self.failures)} invalid out of {len(self.statuses)}), first error is: {self.failures[0]}"


@dataclass(frozen=True, slots=True)
class MetricEvaluator:
    """Computes the numbers of replicas that the metrics of one workload recommend.

    Attributes:
        reader: Reads the metrics.
        namespace: Namespace of autoscaler and workload.
        selector: The selector of the workload's pods.
        pods: The pods that the selector matches.
        desired: ``spec.replicas`` of the workload's scale.
        existing: ``status.replicas`` of the workload's scale.
        tolerances: The tolerances of the autoscaler.
        now: Present time.
        rules: Rules that say which pods count as starting.
    """

    reader: MetricsReader
    namespace: str
    selector: Selector
    pods: Sequence[Pod]
    desired: int
    existing: int
    tolerances: Tolerances
    now: datetime
    rules: ReadinessRules

    async def evaluate_all(self, specs: Sequence[MetricSpec]) -> Evaluation:
        """Evaluate all metrics. If some fail, the others may grow the workload but not shrink it."""
        highest: EvaluatedMetric | None = None
        statuses, failures = [], []
        for spec in specs:
            try:
                evaluated = await self.evaluate(spec)
            except MetricFailure as failure:
                statuses.append(MetricStatus())
                failures.append(failure)
                continue
            statuses.append(evaluated.status)
            if highest is None or highest.replicas == 0 or evaluated.replicas > highest.replicas:
                highest = evaluated
        if highest is not None and failures and highest.replicas < self.desired:
            highest = None
        return Evaluation(highest, statuses, failures)

    async def evaluate(self, spec: MetricSpec) -> EvaluatedMetric:
        """Evaluate one metric.

        Raises:
            MetricFailure: No number of replicas can be computed from the metric.
        """
        if spec.type == "Resource" and spec.resource is not None:
            reason, prefix = "FailedGetResourceMetric", f"failed to get {spec.resource.name} resource metric value"
            try:
                name, current, replicas = await self._resource(spec.resource.name, spec.resource.target, "")
            except (MetricError, ValueError) as error:
                raise MetricFailure(reason, str(error), f"{prefix}: {error}") from error
            resource = ResourceMetricStatus(name=spec.resource.name, current=current)
            return EvaluatedMetric(replicas, name, MetricStatus(type=spec.type, resource=resource))
        if spec.type == "ContainerResource" and spec.container_resource is not None:
            source = spec.container_resource
            reason, prefix = "FailedGetContainerResourceMetric", f"failed to get {source.container} container metric value"
            try:
                name, current, replicas = await self._resource(source.name, source.target, source.container)
            except (MetricError, ValueError) as error:
                raise MetricFailure(reason, str(error), f"{prefix}: {error}") from error
            status = ContainerResourceMetricStatus(name=source.name, container=source.container, current=current)
            return EvaluatedMetric(replicas, name, MetricStatus(type=spec.type, container_resource=status))
        if spec.type == "Pods" and spec.pods is not None:
            return await self._pods(spec.pods)
        if spec.type == "Object" and spec.object is not None:
            return await self._object(spec.object)
        if spec.type == "External" and spec.external is not None:
            return await self._external(spec.external)
        text = f'unknown metric source type "{spec.type}"'
        raise MetricFailure("InvalidMetricSourceType", text, text)

    async def _resource(self, resource: str, target: MetricTarget, container: str) -> tuple[str, MetricValueStatus, int]:
        is_average = target.average_value is not None
        failure = f"failed to get {resource} {'usage' if is_average else 'utilization'}"
        if not is_average and target.average_utilization is None:
            text = "neither an average utilization target nor an average value (usage) target was set"
            raise MetricError(f"invalid resource metric source: {text}")
        try:
            metrics = await self.reader.resource(resource, self.namespace, self.selector, container)
        except MetricError as error:
            raise MetricError(f"{failure}: unable to get metrics for resource {resource}: {error}") from error
        sample = PodSample(self.pods, metrics, self.desired, self.tolerances, self.now, self.rules)
        try:
            if target.average_value is not None:
                proposal = propose_by_average(sample, target.average_value.milli_value(), resource)
                name = f"{resource} resource"
            else:
                proposal = propose_by_utilization(sample, resource, target.average_utilization or 1, container)
                name = f"{resource} {'container ' if container else ''}resource utilization (percentage of request)"
        except MetricError as error:
            raise MetricError(f"{failure}: {error}") from error
        form = QuantityFormat.BINARY if resource == "memory" else QuantityFormat.DECIMAL
        current = MetricValueStatus(average_utilization=proposal.utilization, average_value=_quantity(proposal.usage, form))
        return name, current, proposal.replicas

    async def _pods(self, source: PodsMetricSource) -> EvaluatedMetric:
        metric = source.metric
        try:
            try:
                metrics = await self.reader.pods(metric.name, self.namespace, self.selector, metric.selector)
            except MetricError as error:
                raise MetricError(f"unable to get metric {metric.name}: {error}") from error
            sample = PodSample(self.pods, metrics, self.desired, self.tolerances, self.now, self.rules)
            target = source.target.average_value
            proposal = propose_by_average(sample, target.milli_value() if target is not None else 0)
        except (MetricError, ValueError) as error:
            raise MetricFailure("FailedGetPodsMetric", str(error), f"failed to get pods metric value: {error}") from error
        current = MetricValueStatus(average_value=_quantity(proposal.usage))
        status = PodsMetricStatus(metric=_identifier(metric), current=current)
        return EvaluatedMetric(proposal.replicas, f"pods metric {metric.name}", MetricStatus(type="Pods", pods=status))

    async def _object(self, source: ObjectMetricSource) -> EvaluatedMetric:
        metric, target, described = source.metric, source.target, source.described_object
        by_value = target.type == "Value" and target.value is not None
        prefix = "failed to get object metric value"
        try:
            if not by_value and not (target.type == "AverageValue" and target.average_value is not None):
                raise MetricError("invalid object metric source: neither a value target nor an average value target was set")
            try:
                usage = await self.reader.object(metric.name, self.namespace, described, metric.selector)
            except MetricError as error:
                if not by_value:
                    prefix = f"{prefix}: failed to get {metric.name} object metric"
                # Upstream passes the arguments of this message in the wrong order; the text is the same here.
                place = f"{described.kind} on {self.namespace} {described.name}"
                raise MetricError(f"unable to get metric {metric.name}: {place}/{error}") from error
            proposal = self._propose(usage, target, by_value=by_value)
        except (MetricError, ValueError) as error:
            raise MetricFailure("FailedGetObjectMetric", str(error), f"{prefix}: {error}") from error
        status = ObjectMetricStatus(metric=_identifier(metric), described_object=described, current=_current(proposal, by_value=by_value))
        name = f"{described.kind} metric {metric.name}" if by_value else _external_name(metric)
        return EvaluatedMetric(proposal.replicas, name, MetricStatus(type="Object", object=status))

    async def _external(self, source: ExternalMetricSource) -> EvaluatedMetric:
        metric, target = source.metric, source.target
        by_value = target.average_value is None
        prefix = f"failed to get {metric.name} external metric value"
        try:
            if by_value and target.value is None:
                raise MetricError("invalid external metric source: neither a value target nor an average value target was set")
            inner = f"failed to get external metric {metric.name}" if by_value else f"failed to get {metric.name} external metric"
            prefix = f"{prefix}: {inner}"
            try:
                usage = min(sum(await self.reader.external(metric.name, self.namespace, metric.selector)), _LARGEST)
            except MetricError as error:
                series = f"{self.namespace}/{metric.name}/{_go_text(metric.selector)}"
                raise MetricError(f"unable to get external metric {series}: {error}") from error
            proposal = self._propose(usage, target, by_value=by_value)
        except (MetricError, ValueError) as error:
            raise MetricFailure("FailedGetExternalMetric", str(error), f"{prefix}: {error}") from error
        status = ExternalMetricStatus(metric=_identifier(metric), current=_current(proposal, by_value=by_value))
        return EvaluatedMetric(proposal.replicas, _external_name(metric), MetricStatus(type="External", external=status))

    def _propose(self, usage: int, target: MetricTarget, *, by_value: bool) -> Proposal:
        amount = target.value if by_value else target.average_value
        assert amount is not None  # the callers check it
        if by_value:
            return propose_by_value(self.pods, usage, amount.milli_value(), self.desired, self.tolerances)
        return propose_by_share(usage, amount.milli_value(), self.existing, self.tolerances)


def _current(proposal: Proposal, *, by_value: bool) -> MetricValueStatus:
    amount = _quantity(proposal.usage)
    return MetricValueStatus(value=amount) if by_value else MetricValueStatus(average_value=amount)


def _quantity(thousandths: int, form: QuantityFormat = QuantityFormat.DECIMAL) -> Quantity:
    return Quantity(Fraction(thousandths, 1000), form)


def _identifier(metric: MetricIdentifier) -> MetricIdentifier:
    return MetricIdentifier(name=metric.name, selector=metric.selector)


def _external_name(metric: MetricIdentifier) -> str:
    return f"external metric {metric.name}({_go_text(metric.selector)})"


def _go_text(selector: LabelSelector | None) -> str:
    """Return the text of a selector that Go's ``LabelSelector.String`` prints, which conditions and events quote."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted(selector.match_labels.items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{one.key},Operator:{one.operator},Values:[{' '.join(one.values)}],}},"
        for one in selector.match_expressions
    )
    return f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
