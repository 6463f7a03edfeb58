"""The persistent cache: an informer's last state in a file, so that a restart resumes the watch instead of listing everything."""

from kubeloop.cache.persistence.persistence import Persistence
from kubeloop.cache.persistence.state_file import FolderInUse

__all__ = ["FolderInUse", "Persistence"]
