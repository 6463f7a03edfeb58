"""Which fields of an object a field manager owns: taking them out to apply them again, and moving them from updates to applies."""

from kubeloop.client.ownership.extract import extract
from kubeloop.client.ownership.upgrade import upgrade_patch

__all__ = ["extract", "upgrade_patch"]
