"""Who may do what: decisions from memory, by roles and by what nodes are known to need."""

from kubeloop.apiserver.authorization.modes import MODES, Authorization
from kubeloop.endpoints.access import Access, Authorizer, Decision, Rules, access_of, forbidden, require

__all__ = ["MODES", "Access", "Authorization", "Authorizer", "Decision", "Rules", "access_of", "forbidden", "require"]
