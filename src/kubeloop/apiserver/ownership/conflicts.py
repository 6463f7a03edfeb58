"""What a client is told whose apply wants fields that others own.

Source: k8s.io/apimachinery pkg/util/managedfields/internal/conflict.go; Kubernetes documentation "Server-Side Apply", "Conflicts".
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.apiserver import refusals
from kubeloop.apiserver.ownership.entries import UPDATE, manager_named
from kubeloop.merge.fields import Conflict
from kubeloop.meta.errors import ApiError
from kubeloop.meta.go_quote import go_quoted
from kubeloop.meta.status import StatusCause, StatusDetails


def apply_conflict(conflicts: Sequence[Conflict]) -> ApiError:
    """A Conflict with a cause for each field. Causes are in the order given; the message goes by manager."""
    causes = [
        StatusCause(reason="FieldManagerConflict", message=f"conflict with {_shown(one.manager)}", field=one.field) for one in conflicts
    ]
    return refusals.refusal(409, "Conflict", _message(conflicts), StatusDetails(causes=causes))


def _message(conflicts: Sequence[Conflict]) -> str:
    if len(conflicts) == 1:
        return f"Apply failed with 1 conflict: conflict with {_shown(conflicts[0].manager)}: {conflicts[0].field}"
    fields: dict[str, list[str]] = {}
    for conflict in conflicts:
        fields.setdefault(conflict.manager, []).append(conflict.field)
    lines = []
    for manager in sorted(fields):
        lines.append(f"conflicts with {_shown(manager)}:")
        lines += [f"- {field}" for field in fields[manager]]
    shown = "\n".join(lines)
    return f"Apply failed with {len(conflicts)} conflicts: {shown}"


def _shown(text: str) -> str:
    """Without the time of the write: upstream means to say it, but does not."""
    manager = manager_named(text)
    shown = go_quoted(manager.name)
    if manager.subresource:
        shown += f" with subresource {go_quoted(manager.subresource)}"
    return f"{shown} using {manager.api_version}" if manager.operation == UPDATE else shown
