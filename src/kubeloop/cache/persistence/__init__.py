"""The persistent cache: an informer's last state in a file, so that a restart resumes the watch instead of listing everything."""

from kubeloop.cache.persistence.folder import FolderInUse
from kubeloop.cache.persistence.persistence import Persistence

__all__ = ["FolderInUse", "Persistence"]
