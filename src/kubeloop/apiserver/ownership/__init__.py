"""Field management: ownership of fields, server-side apply, conflicts. Source: KEP-555, "Server-Side Apply"."""

from kubeloop.apiserver.ownership.entries import keep_readable
from kubeloop.apiserver.ownership.managers import SERVER, keep_times, manager_of
from kubeloop.apiserver.ownership.owners import Owners
from kubeloop.apiserver.ownership.scopes import Scope, scale_scope, token_request_scope

__all__ = ["SERVER", "Owners", "Scope", "keep_readable", "keep_times", "manager_of", "scale_scope", "token_request_scope"]
