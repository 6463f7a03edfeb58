"""Field management: ownership of fields, server-side apply, conflicts. Source: KEP-555, "Server-Side Apply"."""

from kubeloop.apiserver.ownership.entries import restore_valid_entries
from kubeloop.apiserver.ownership.managers import SERVER, manager_of, restore_times
from kubeloop.apiserver.ownership.owners import Owners
from kubeloop.apiserver.ownership.scopes import Scope, scale_scope, token_request_scope

__all__ = ["SERVER", "Owners", "Scope", "manager_of", "restore_times", "restore_valid_entries", "scale_scope", "token_request_scope"]
