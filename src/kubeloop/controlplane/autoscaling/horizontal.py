"""HorizontalPodAutoscaler controller: sets the number of replicas of workloads with a scale subresource according to metrics.

It executes the decisions of ``metric_evaluation`` and ``behavior``. Source: Kubernetes pkg/controller/podautoscaler/horizontal.go.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from kubeloop.api.autoscaling.v1 import Scale
from kubeloop.api.autoscaling.v2 import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerStatus,
    MetricStatus,
)
from kubeloop.api.core.v1 import Pod
from kubeloop.controller import KeyController, Result
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.autoscaling.behavior import ScalingBounds, ScalingHistory, decide_scaling
from kubeloop.controlplane.autoscaling.metric_evaluation import Evaluation, MetricEvaluator
from kubeloop.controlplane.autoscaling.metrics import MetricsReader
from kubeloop.controlplane.autoscaling.replica_calculator import ReadinessRules, Tolerances
from kubeloop.controlplane.controller_utils import ComponentEvents
from kubeloop.meta import (
    ApiError,
    Conflict,
    KubeloopError,
    NotFound,
    ObjectKey,
    Resource,
    Selector,
    UnknownKind,
    Unstructured,
    parse_label_selector,
)

#: Seconds between two decisions about one workload (kube-controller-manager's default).
SYNC_PERIOD = 15.0
#: Attempts to write a scale after conflicts (client-go's default).
_ATTEMPTS = 5
_LOG = logging.getLogger("kubeloop.controlplane")
_ABLE, _ACTIVE, _LIMITED = "AbleToScale", "ScalingActive", "ScalingLimited"


class ScalingFailed(KubeloopError):
    """An autoscaler could not compute the number of replicas or write the scale; conditions and events give the reason."""


class UnusableSelector(KubeloopError):
    """The selector of a workload is missing or malformed, or another autoscaler selects the same pods; with upstream's message."""


class NoSuchKind(KubeloopError):
    """The server does not serve the kind of an autoscaler's target; the message is upstream's."""


@dataclass(slots=True)
class _Autoscaler:
    """The controller's memory of one autoscaler.

    Attributes:
        due: Time of the clock at which the autoscaler is synced next.
        history: Earlier recommendations and rescales.
        selector: Selector of the workload's pods; None until it is known.
    """

    due: float
    history: ScalingHistory = field(default_factory=ScalingHistory)
    selector: Selector | None = None


class HorizontalPodAutoscalerController(
    KeyController[HorizontalPodAutoscaler],
    reads=[Pod],
    workers=5,
    name="horizontal-pod-autoscaler-controller",
):
    """Scales workloads by their metrics, and writes conditions and metrics into the status of each autoscaler.

    Guarantees:
        An autoscaler is synced once in a period, the first time one period after it appears, as upstream.
        A scale is written only at the resource version on which the decision is based, or at a newer one after a conflict.
        Several autoscalers that select the same pods never scale; a condition names them.

    Not guaranteed:
        Stabilization across a restart: recommendations and rescales are only in memory, as upstream.

    Args:
        period: Seconds between two syncs of one autoscaler.
        rules: Rules that say which pods count as starting; None: the defaults.
    """

    def __init__(self, *, period: float = SYNC_PERIOD, rules: ReadinessRules | None = None) -> None:
        self._period = period
        self._rules = rules or ReadinessRules()
        self._known: dict[ObjectKey, _Autoscaler] = {}

    async def start(self) -> None:
        self._reader = MetricsReader(self.client)
        self._known.clear()

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents(component="horizontal-pod-autoscaler")]

    async def reconcile(self, key: ObjectKey) -> Result | None:
        autoscaler = self.lister(HorizontalPodAutoscaler).by_key(key)
        if autoscaler is None:
            self._known.pop(key, None)
            return None
        now = self.clock.now()
        known = self._known.setdefault(key, _Autoscaler(now + self._period))
        if now < known.due:
            return Result(requeue_after=known.due - now)
        known.due = now + self._period
        try:
            await self._sync(autoscaler, known)
        except ScalingFailed as failure:
            # Conditions and events report the failure to users, and the next period retries: it is no error of this program.
            _LOG.info("%s: %s", key, failure)
        return Result(requeue_after=self._period)

    async def _sync(self, autoscaler: HorizontalPodAutoscaler, known: _Autoscaler) -> None:
        """Compute the number of replicas of one autoscaler's workload, scale the workload, and write the autoscaler's status.

        Raises:
            ScalingFailed: The workload, its scale or its metrics cannot be read or written.
        """
        before = copy.deepcopy(autoscaler.status)
        try:
            kind, scale = await self._find_scale(autoscaler)
        except KubeloopError as error:
            text = _message(error)
            self.events.warning(autoscaler, "FailedGetScale", text)
            self._set_condition(
                autoscaler, _ABLE, "False", "FailedGetScale", f"the HPA controller was unable to get the target's current scale: {text}"
            )
            await self._write_status(autoscaler, before)
            raise ScalingFailed(f"failed to query scale subresource for {_reference(autoscaler)}: {text}") from error
        text = "the HPA controller was able to get the target's current scale"
        self._set_condition(autoscaler, _ABLE, "True", "SucceededGetScale", text)
        current = scale.spec.replicas or 0
        known.history.record_initial(current, self.clock.now())

        evaluation: Evaluation | None = None
        desired, reason = self._bounded(autoscaler, current)
        if desired is None:
            try:
                evaluation = await self._evaluate(autoscaler, known, scale)
            except UnusableSelector as error:
                await self._fail(autoscaler, before, current, [], str(error))
            if evaluation.highest is None:
                await self._fail(autoscaler, before, current, evaluation.statuses, evaluation.error)
            desired, reason = self._decide(autoscaler, known, current, evaluation)
        statuses = evaluation.statuses if evaluation is not None else []
        if desired != current:
            await self._rescale(autoscaler, before, kind, scale, desired, reason, statuses)
            known.history.record_rescale(autoscaler.spec.behavior, current, desired, self.clock.now())
        self._set_numbers(autoscaler, current, desired, statuses)
        if desired != current:
            autoscaler.status.last_scale_time = self.clock.wall().replace(microsecond=0)
        await self._write_status(autoscaler, before)
        if evaluation is not None and evaluation.failures:
            raise ScalingFailed(evaluation.error)

    async def _fail(
        self,
        autoscaler: HorizontalPodAutoscaler,
        before: HorizontalPodAutoscalerStatus,
        current: int,
        statuses: list[MetricStatus],
        error: str,
    ) -> NoReturn:
        """Report in status and Events that no number of replicas can be computed from the metrics.

        Raises:
            ScalingFailed: Always.
        """
        self._set_numbers(autoscaler, current, autoscaler.status.desired_replicas, statuses)
        await self._write_status(autoscaler, before)
        self.events.warning(autoscaler, "FailedComputeMetricsReplicas", error)
        raise ScalingFailed(f"failed to compute desired number of replicas based on listed metrics for {_reference(autoscaler)}: {error}")

    # -------------------------------------------------------------------------------------------------------------- the workload

    async def _find_scale(self, autoscaler: HorizontalPodAutoscaler) -> tuple[type[Resource], Scale]:
        """Return the workload's kind and scale, from the first served version of the kind that has a scale subresource.

        Raises:
            KubeloopError: The kind, object or subresource does not exist; the message is upstream's for the first version.
        """
        reference, namespace = autoscaler.spec.scale_target_ref, autoscaler.metadata.namespace
        failure: KubeloopError | None = None
        for kind in await self._kinds(reference.api_version or "", reference.kind):
            try:
                scale = await self.client.get_scale(kind, reference.name, namespace=namespace)
            except (ApiError, ValueError) as error:
                failure = failure or (error if isinstance(error, ApiError) else NoSuchKind("unrecognized resource"))
                continue
            text = scale.status.selector or ""
            try:
                parse_label_selector(text)
            except ValueError as error:
                conversion = "received an object from a /scale endpoint which was not convertible to autoscaling Scale"
                cause = f'failed to parse target selector: couldn\'t parse the selector string "{text}": {error}'
                raise UnusableSelector(f"{conversion}: {cause}") from error
            return kind, scale
        raise failure or NoSuchKind("unrecognized resource")

    async def _kinds(self, api_version: str, kind: str) -> list[type[Resource]]:
        if api_version.count("/") > 1:
            raise NoSuchKind(f"unexpected GroupVersion string: {api_version}")
        group = api_version.rpartition("/")[0]
        named = Unstructured.for_kind(api_version or "v1", kind)
        try:
            await self.client.mapping(named)
        except UnknownKind:
            # An autoscaler may name a version that is no longer served: any version of the kind suffices.
            versions = {
                one.gvk.api_version: None for one in await self.client.mapper.resources() if (one.gvk.group, one.gvk.kind) == (group, kind)
            }
            if not versions:
                raise NoSuchKind(f'no matches for kind "{kind}" in group "{group}"') from None
            return [Unstructured.for_kind(version, kind) for version in versions]
        return [named]

    async def _rescale(
        self,
        autoscaler: HorizontalPodAutoscaler,
        before: HorizontalPodAutoscalerStatus,
        kind: type[Resource],
        scale: Scale,
        desired: int,
        reason: str,
        statuses: list[MetricStatus],
    ) -> None:
        """Write the workload's scale.

        Raises:
            ScalingFailed: The server refuses the write, which an Event, a condition and the status report.
        """
        current = scale.spec.replicas or 0
        try:
            await self._write_scale(autoscaler, kind, scale, desired)
        except KubeloopError as error:
            text = _message(error)
            self.events.warning(autoscaler, "FailedRescale", f"New size: {desired}; reason: {reason}; error: {text}")
            self._set_condition(
                autoscaler, _ABLE, "False", "FailedUpdateScale", f"the HPA controller was unable to update the target scale: {text}"
            )
            self._set_numbers(autoscaler, current, autoscaler.status.desired_replicas, statuses)
            await self._write_status(autoscaler, before)
            raise ScalingFailed(f"failed to rescale {_reference(autoscaler)}: {text}") from error
        text = f"the HPA controller was able to update the target scale to {desired}"
        self._set_condition(autoscaler, _ABLE, "True", "SucceededRescale", text)
        self.events.normal(autoscaler, "SuccessfulRescale", f"New size: {desired}; reason: {reason}")

    async def _write_scale(self, autoscaler: HorizontalPodAutoscaler, kind: type[Resource], scale: Scale, desired: int) -> None:
        name, namespace = autoscaler.spec.scale_target_ref.name, autoscaler.metadata.namespace
        for attempt in range(_ATTEMPTS):
            version = scale.metadata.resource_version
            try:
                await self.client.set_scale(kind, name, desired, namespace=namespace, resource_version=version)
            except Conflict:
                if attempt + 1 == _ATTEMPTS:
                    raise
                scale = await self.client.get_scale(kind, name, namespace=namespace)
            else:
                return

    # -------------------------------------------------------------------------------------------------------------- the decision

    def _bounded(self, autoscaler: HorizontalPodAutoscaler, current: int) -> tuple[int | None, str]:
        """Return the number of replicas that the bounds or a size of zero dictate, with a reason; None if the metrics decide."""
        minimum = _minimum(autoscaler)
        if current == 0:
            text = "scaling is disabled since the replica count of the target is zero"
            self._set_condition(autoscaler, _ACTIVE, "False", "ScalingDisabled", text)
            self._drop_condition(autoscaler, "ScaledToZero")
            return 0, ""
        if current > autoscaler.spec.max_replicas:
            return autoscaler.spec.max_replicas, "Current number of replicas above Spec.MaxReplicas"
        if current < minimum:
            return minimum, "Current number of replicas below Spec.MinReplicas"
        return None, ""

    async def _evaluate(self, autoscaler: HorizontalPodAutoscaler, known: _Autoscaler, scale: Scale) -> Evaluation:
        """Evaluate the metrics, and set the condition ScalingActive.

        Raises:
            UnusableSelector: The workload has no selector, or another autoscaler selects the same pods.
        """
        namespace = autoscaler.metadata.namespace
        selector = self._selector(autoscaler, known, scale)
        evaluator = MetricEvaluator(
            self._reader,
            namespace,
            selector,
            self.lister(Pod).list(namespace, selector),
            scale.spec.replicas or 0,
            scale.status.replicas,
            Tolerances.from_behavior(autoscaler.spec.behavior),
            self.clock.wall(),
            self._rules,
        )
        evaluation = await evaluator.evaluate_all(autoscaler.spec.metrics)
        for failure in evaluation.failures:
            self.events.warning(autoscaler, failure.reason, failure.cause)
        if evaluation.highest is None:
            first = evaluation.failures[0]
            text = f"the HPA was unable to compute the replica count: {first.cause}"
            self._set_condition(autoscaler, _ACTIVE, "False", first.reason, text)
        else:
            text = f"the HPA was able to successfully calculate a replica count from {evaluation.highest.name}"
            self._set_condition(autoscaler, _ACTIVE, "True", "ValidMetricFound", text)
        return evaluation

    def _decide(self, autoscaler: HorizontalPodAutoscaler, known: _Autoscaler, current: int, evaluation: Evaluation) -> tuple[int, str]:
        """Return the number of replicas and the reason of a rescale; set the conditions AbleToScale and ScalingLimited."""
        highest = evaluation.highest
        if highest is None:
            return current, ""
        proposed = highest.replicas
        reason = f"{highest.name} above target" if proposed > current else "All metrics below target" if proposed < current else ""
        bounds = ScalingBounds(current, _minimum(autoscaler), autoscaler.spec.max_replicas)
        decision = decide_scaling(known.history, bounds, proposed, autoscaler.spec.behavior, self.clock.now())
        self._set_condition(autoscaler, _ABLE, "True", *decision.able)
        self._set_condition(autoscaler, _LIMITED, "True" if decision.limited else "False", *decision.limit)
        return decision.replicas, reason

    def _selector(self, autoscaler: HorizontalPodAutoscaler, known: _Autoscaler, scale: Scale) -> Selector:
        """Return the selector of the workload's pods.

        Raises:
            UnusableSelector: The workload has no selector, or another autoscaler selects the same pods.
        """
        text = scale.status.selector or ""
        if not text:
            self._set_condition(autoscaler, _ACTIVE, "False", "InvalidSelector", "the HPA target's scale is missing a selector")
            self.events.warning(autoscaler, "SelectorRequired", "selector is required")
            raise UnusableSelector("selector is required")
        selector = known.selector = parse_label_selector(text)
        others = self._autoscalers_of_pods(autoscaler.metadata.namespace, selector)
        if len(others) > 1:
            message = f"pods by selector {text} are controlled by multiple HPAs: [{' '.join(others)}]"
            self.events.warning(autoscaler, "AmbiguousSelector", message)
            self._set_condition(autoscaler, _ACTIVE, "False", "AmbiguousSelector", message)
            raise UnusableSelector(message)
        return selector

    def _autoscalers_of_pods(self, namespace: str, selector: Selector) -> list[str]:
        """Return the autoscalers whose known selectors match one of the pods that ``selector`` matches."""
        rivals = {key: one.selector for key, one in self._known.items() if key.namespace == namespace and one.selector is not None}
        labels = [pod.labels for pod in self.lister(Pod).heads(namespace, selector)]
        return sorted(f"{key.namespace}/{key.name}" for key, other in rivals.items() if any(other.matches(one) for one in labels))

    # ---------------------------------------------------------------------------------------------------------------- the status

    def _set_numbers(self, autoscaler: HorizontalPodAutoscaler, current: int, desired: int, statuses: list[MetricStatus]) -> None:
        status = autoscaler.status
        autoscaler.status = HorizontalPodAutoscalerStatus(
            current_replicas=current,
            desired_replicas=desired,
            last_scale_time=status.last_scale_time,
            current_metrics=statuses,
            conditions=status.conditions,
        )

    def _set_condition(self, autoscaler: HorizontalPodAutoscaler, kind: str, status: str, reason: str, message: str) -> None:
        conditions = autoscaler.status.conditions
        condition = next((one for one in conditions if one.type == kind), None)
        if condition is None:
            condition = HorizontalPodAutoscalerCondition(type=kind)
            conditions.append(condition)
        if condition.status != status:
            condition.last_transition_time = self.clock.wall().replace(microsecond=0)
        condition.status, condition.reason, condition.message = status, reason, message

    def _drop_condition(self, autoscaler: HorizontalPodAutoscaler, kind: str) -> None:
        autoscaler.status.conditions = [one for one in autoscaler.status.conditions if one.type != kind]

    async def _write_status(self, autoscaler: HorizontalPodAutoscaler, before: HorizontalPodAutoscalerStatus) -> None:
        """Write the status if it differs from ``before``. If the server refuses it, record an Event; the next period retries."""
        if autoscaler.status == before:
            return
        try:
            await self.client.update_status(autoscaler)
        except NotFound:
            return
        except ApiError as error:
            self.events.warning(autoscaler, "FailedUpdateStatus", error.status.message)


def _reference(autoscaler: HorizontalPodAutoscaler) -> str:
    target = autoscaler.spec.scale_target_ref
    return f"{target.kind}/{autoscaler.metadata.namespace}/{target.name}"


def _minimum(autoscaler: HorizontalPodAutoscaler) -> int:
    return 1 if autoscaler.spec.min_replicas is None else autoscaler.spec.min_replicas


def _message(error: KubeloopError) -> str:
    return error.status.message if isinstance(error, ApiError) else str(error)
