"""The health of a node's background tasks, pod workers and probes among them: ``/readyz`` and ``/metrics`` of the kubelet's endpoint.

Source: Kubernetes pkg/kubelet/metrics (names of metrics); docs/architecture.md, "Background tasks, start and stop".
"""

from __future__ import annotations

from kubeloop.endpoints.metrics_text import Exposition
from kubeloop.tasks import Supervisor


class KubeletHealth:
    """Reports which background tasks of a node are healthy.

    Args:
        tasks: All tasks of the node; the supervisors of its pods are children of it.

    Example:
        >>> KubeletHealth(Supervisor(FakeClock(), logging.getLogger())).report()
        'ok'
    """

    def __init__(self, tasks: Supervisor) -> None:
        self._tasks = tasks

    @property
    def healthy(self) -> bool:
        """Whether all tasks are healthy."""
        return all(map(self._tasks.healthy, self._tasks.failures))

    def report(self, *, verbose: bool = False) -> str:
        """Return the text of ``/readyz``: ``ok``, or the names of all tasks with their state.

        Args:
            verbose: Name the tasks even if all of them are healthy.
        """
        if self.healthy and not verbose:
            return "ok"
        lines = [f"[+]{name} ok" if self._tasks.healthy(name) else f"[-]{name} failed" for name in sorted(self._tasks.failures)]
        return "\n".join([*lines, f"readyz check {'passed' if self.healthy else 'failed'}", ""])

    def metrics(self, pods: int, containers: int) -> str:
        """Return the text of ``/metrics``.

        Args:
            pods: Number of pods of the node.
            containers: Number of running containers.
        """
        out = Exposition()
        out.gauge("kubelet_running_pods", "Number of pods that have a worker.", [({}, pods)])
        out.gauge("kubelet_running_containers", "Number of containers currently running.", [({"container_state": "running"}, containers)])
        failures = [({"task": name}, count) for name, count in self._tasks.failures.items()]
        out.counter("kubeloop_background_task_failures_total", "Failures of background tasks, which are retried.", failures)
        restarts = [({"task": name}, count) for name, count in self._tasks.restarts.items()]
        out.counter("kubeloop_background_task_restarts_total", "Restarts of background tasks after a failure.", restarts)
        states = [({"name": name}, self._tasks.healthy(name)) for name in self._tasks.failures]
        out.gauge("kubernetes_healthcheck", "Whether the tasks of a name work: 1, or 0.", states)
        return out.text()
