"""The persistent cache: an informer's last state in a file, so that a restart resumes the watch instead of listing everything."""

from kubeloop.cache.disk.folder import FolderInUse
from kubeloop.cache.disk.persistence import Persistence

__all__ = ["FolderInUse", "Persistence"]
