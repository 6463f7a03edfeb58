"""The User-Agent of a program in the form of client-go (rest/config.go): ``<program>/<version> (<os>/<arch>) kubeloop``."""

from __future__ import annotations

import os
import sys

from kubeloop.version import VERSION

# In Go's spelling, so that a server's logs and flow schemas see one spelling.
_ARCHITECTURES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "i386": "386", "i686": "386", "armv7l": "arm"}
_SYSTEMS = {"win32": "windows"}


def default_user_agent(program: str | None = None) -> str:
    """Return the User-Agent of a program. ``program`` is its path, by default ``sys.argv[0]``."""
    if program is None:
        program = sys.argv[0] if sys.argv else ""
    folder, _, file = program.replace("\\", "/").rpartition("/")
    if file == "__main__.py":  # python -m PACKAGE
        file = folder.rpartition("/")[2]
    name = "".join(one for one in file if one.isascii() and (one.isalnum() or one in "-_.")) if file not in ("-c", "-m") else ""
    machine = os.uname().machine if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", "unknown")
    where = f"{_SYSTEMS.get(sys.platform, sys.platform)}/{_ARCHITECTURES.get(machine, machine)}"
    return f"{name or 'python'}/v{VERSION} ({where}) kubeloop/v{VERSION}"
