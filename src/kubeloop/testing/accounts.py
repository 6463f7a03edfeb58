"""Admission settings of servers without controllers: pods need service accounts, which controllers make; envtest does the same."""

from __future__ import annotations

from kubeloop.apiserver.admission.plugins import AdmissionOptions

WITHOUT_ACCOUNTS = AdmissionOptions(disable=("ServiceAccount",))
