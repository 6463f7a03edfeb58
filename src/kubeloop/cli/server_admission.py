"""Admission flags of ``kubeloop server``, named as kube-apiserver's: which plug-ins run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from kubeloop.apiserver.admission.plugins import AdmissionOptions

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """The values of the flags."""

    enable: tuple[str, ...]
    disable: tuple[str, ...]

    def options(self) -> AdmissionOptions:
        """Convert to options. Raises ConfigError for unknown or unsupported names."""
        from kubeloop.apiserver.admission.plugins import AdmissionOptions
        from kubeloop.apiserver.admission.table import chosen, split

        options = AdmissionOptions(split(self.enable), split(self.disable))
        chosen(options.enable, options.disable)
        return options


def admission_options(command: _Command) -> _Command:
    """Add the flags; ``command`` gets them as one argument, ``admission``."""

    @functools.wraps(command)
    def run(*positional: Any, enable_admission_plugins: tuple[str, ...], disable_admission_plugins: tuple[str, ...], **values: Any) -> Any:
        return command(*positional, admission=AdmissionSettings(enable_admission_plugins, disable_admission_plugins), **values)

    names = "NAME,..."
    for option in (
        click.option("--disable-admission-plugins", multiple=True, metavar=names, help="Plug-ins on by default that shall not run."),
        click.option("--enable-admission-plugins", multiple=True, metavar=names, help="Plug-ins besides those on by default."),
    ):
        run = option(run)
    return run  # type: ignore[return-value]  # click's decorators keep the called function, as wraps does
