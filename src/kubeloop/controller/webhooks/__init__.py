"""Webhooks: admission and conversion hooks typed by kind, answered over TLS with certificates that renew themselves."""

from kubeloop.controller.webhooks.admission import Answered
from kubeloop.controller.webhooks.declared import Hook, HookOptions
from kubeloop.controller.webhooks.denied import Denied, Warnings
from kubeloop.controller.webhooks.hooks import Webhooks
from kubeloop.controller.webhooks.request import AdmissionRequest, Operation, ReviewMalformed, User

__all__ = ["AdmissionRequest", "Answered", "Denied", "Hook", "HookOptions", "Operation", "ReviewMalformed", "User", "Warnings", "Webhooks"]
