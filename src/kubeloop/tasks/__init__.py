"""Background tasks: how they are supervised, and how they are ended without losing a cancellation or an error."""

from kubeloop.tasks.cleanup import close_all, end_tasks, finish, raise_errors, result_of, wait_all, wait_within
from kubeloop.tasks.supervisor import SupervisedTask, Supervisor

__all__ = ["SupervisedTask", "Supervisor", "close_all", "end_tasks", "finish", "raise_errors", "result_of", "wait_all", "wait_within"]
