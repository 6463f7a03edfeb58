"""Authorization: decisions in memory, by the modes Node, RBAC, AlwaysAllow and AlwaysDeny."""

from kubeloop.apiserver.authorization.modes import MODES, Authorization
from kubeloop.endpoints.access import Access, Authorizer, Decision, Rules, access_of, forbidden, require

__all__ = ["MODES", "Access", "Authorization", "Authorizer", "Decision", "Rules", "access_of", "forbidden", "require"]
