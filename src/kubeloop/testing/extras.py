"""What the embedded server needs beyond kubeloop itself, and what to say to whoever has not installed it."""

from __future__ import annotations

from kubeloop.meta.errors import ConfigError


def not_installed(error: ModuleNotFoundError) -> ConfigError:
    """The way out for ``error``, which an import of the embedded server raised.

    Raises:
        ModuleNotFoundError: ``error`` itself, if a module of kubeloop's own is missing: no extra would bring it.
    """
    missing = (error.name or "").partition(".")[0]
    if missing in ("", "kubeloop"):
        raise error
    return ConfigError(f"the embedded server needs {missing}, which is not installed: pip install 'kubeloop[server]'")
