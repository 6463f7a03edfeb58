"""The kubeconfig of ``kubeloop server``: never overwrites a file of another author."""

from __future__ import annotations

from pathlib import Path

from kubeloop.config.kubeconfig import read_kubeconfig
from kubeloop.meta.errors import ConfigError

#: The names of all entries in a kubeconfig that a server wrote.
_OURS = {"kubeloop", "kubeloop-admin"}


def writable_target(path: Path) -> Path:
    """Return the target of ``path``, with links followed: it must not exist, be empty, or be a former server's kubeconfig.

    Raises:
        ConfigError: the file has other content, such as a kubeconfig with other clusters, which would be lost.
    """
    target = path.resolve()
    if not target.exists():
        return target
    if not target.is_file():
        raise ConfigError(f"{path}: not a regular file; name another one for the kubeconfig")
    if not target.stat().st_size:
        return target
    try:
        found = read_kubeconfig([target], must_exist=True)
    except ConfigError:
        raise ConfigError(f"{path}: exists and is no kubeconfig, so it is left as it is; name another file, or delete it") from None
    if others := sorted({*found.clusters, *found.users, *found.contexts} - _OURS):
        raise ConfigError(
            f"{path}: holds other entries ({', '.join(others)}), which would be lost, so it is left as it is; name another file, "
            f"and let kubectl merge: KUBECONFIG={path}:OTHER"
        )
    return target
