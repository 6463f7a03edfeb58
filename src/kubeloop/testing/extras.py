"""The error for a missing extra: the embedded server needs more packages than kubeloop itself."""

from __future__ import annotations

from kubeloop.meta.errors import ConfigError


def not_installed(error: ModuleNotFoundError) -> ConfigError:
    """Return the error to raise for ``error``, which an import of the embedded server raised.

    Raises:
        ModuleNotFoundError: ``error`` itself, if a module of kubeloop is missing: no extra would provide it.
    """
    missing = (error.name or "").partition(".")[0]
    if missing in ("", "kubeloop"):
        raise error
    return ConfigError(f"the embedded server needs {missing}, which is not installed: pip install 'kubeloop[server]'")
