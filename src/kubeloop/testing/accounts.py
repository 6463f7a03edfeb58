"""Admission of servers without controllers: nobody makes the service accounts without which pods are refused; envtest does the same."""

from __future__ import annotations

from kubeloop.apiserver.admission.plugins import AdmissionOptions

WITHOUT_ACCOUNTS = AdmissionOptions(disable=("ServiceAccount",))
