"""Admission and conversion webhooks typed by kind, served over TLS with certificates that are renewed automatically."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeloop.controller.webhooks.admission import Answered
from kubeloop.controller.webhooks.configurations import Service, Url
from kubeloop.controller.webhooks.declared import AdmissionHook, HookOptions
from kubeloop.controller.webhooks.hooks import Webhooks
from kubeloop.controller.webhooks.registration import Inject, Register
from kubeloop.controller.webhooks.request import AdmissionRequest, AdmissionUser, Denied, Operation, ReviewMalformed, Warnings
from kubeloop.controller.webhooks.reviews import Reviewed
from kubeloop.controller.webhooks.server import WebhookServer
from kubeloop.controller.webhooks.tls import CertificateFiles, CertificateSource, ServingCertificate

if TYPE_CHECKING:
    from kubeloop.controller.webhooks.certificates.managed import ManagedCertificates
    from kubeloop.controller.webhooks.certificates.rotation import Lifetimes

__all__ = [
    "AdmissionHook",
    "AdmissionRequest",
    "AdmissionUser",
    "Answered",
    "CertificateFiles",
    "CertificateSource",
    "Denied",
    "HookOptions",
    "Inject",
    "Lifetimes",
    "ManagedCertificates",
    "Operation",
    "Register",
    "ReviewMalformed",
    "Reviewed",
    "Service",
    "ServingCertificate",
    "Url",
    "Warnings",
    "WebhookServer",
    "Webhooks",
]

_SELF_MADE = {"ManagedCertificates": "managed", "Lifetimes": "rotation"}


if not TYPE_CHECKING:  # otherwise a type checker would accept any misspelt name as Any

    def __getattr__(name: str) -> Any:
        # Making certificates requires the package cryptography; serving certificates from files does not.
        if name not in _SELF_MADE:
            from kubeloop.meta.missing_names import missing_name

            raise missing_name(__name__, name)
        import importlib

        try:
            module = importlib.import_module(f"{__name__}.certificates.{_SELF_MADE[name]}")
        except ModuleNotFoundError as error:
            from kubeloop.meta import ConfigError

            if error.name is None or error.name.partition(".")[0] != "cryptography":
                raise
            raise ConfigError("making certificates requires cryptography, which is missing: pip install 'kubeloop[server]'") from error
        return getattr(module, name)
