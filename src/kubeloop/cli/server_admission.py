"""Admission flags of ``kubeloop server``, with kube-apiserver's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubeloop.cli.flags import flag

if TYPE_CHECKING:
    from kubeloop.apiserver.admission.plugins import AdmissionOptions


@dataclass(frozen=True, slots=True)
class AdmissionFlags:
    """Names of plug-ins; each value may contain several, separated by commas."""

    enable_admission_plugins: tuple[str, ...] = flag((), metavar="NAME,...", help="Plug-ins to run in addition to the default ones.")
    disable_admission_plugins: tuple[str, ...] = flag((), metavar="NAME,...", help="Default plug-ins to leave out.")

    def options(self) -> AdmissionOptions:
        """Return the server's options. Raises ConfigError for unknown names and for plug-ins that cannot be disabled."""
        from kubeloop.apiserver.admission.plugins import AdmissionOptions
        from kubeloop.apiserver.admission.table import enabled_plugins, split_names

        options = AdmissionOptions(split_names(self.enable_admission_plugins), split_names(self.disable_admission_plugins))
        enabled_plugins(options.enable, options.disable)
        return options
