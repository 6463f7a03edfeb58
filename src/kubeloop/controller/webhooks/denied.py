"""What a webhook says besides yes: refusals, with the fields that are at fault, and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeloop.meta import ApiError, KubeloopError
from kubeloop.meta.field_error import OMITTED, FieldError, FieldErrorType
from kubeloop.meta.kinds import GroupKind
from kubeloop.meta.status import Status, StatusCause, StatusDetails
from kubeloop.meta.type_checks import described_word


class Denied(KubeloopError):
    """Raised by a hook: the write is refused, and its author reads ``message``.

    ``field`` (``spec.replicas``) makes it an Invalid answer (422) that names the field as a cause, as built-in validation does; ``value``
    is what was met there. ``errors`` instead of both: several fields at once, made by ``kubeloop.meta.field_error``. Else the answer is
    Forbidden (403), unless ``code`` and ``reason`` say something else.

    Raises:
        ValueError: neither ``message`` nor ``errors``; ``code`` is no error's (400 to 599).
    """

    def __init__(
        self,
        message: str = "",
        *,
        field: str = "",
        value: Any = OMITTED,
        errors: Sequence[FieldError] = (),
        code: int = 0,
        reason: str = "",
    ) -> None:
        if field:
            errors = (FieldError(FieldErrorType.INVALID, field, value, message), *errors)
        if not message and not errors:
            raise ValueError("Denied needs a message for whoever is refused, or errors=[...] that name fields")
        if code and code not in range(400, 600):
            raise ValueError(f"code={described_word(code)}: a refusal has a code from 400 to 599")
        super().__init__(message or "; ".join(map(str, errors)))
        self.errors = tuple(errors)
        self.code = code
        self.reason = reason

    def status(self, kind: GroupKind, name: str) -> Status:
        """The Status that a client is to see, about an object of that kind and name.

        Source: k8s.io/apimachinery pkg/api/errors NewInvalid and NewForbidden.
        """
        if not self.errors:
            return Status(message=str(self), reason=self.reason or ("" if self.code else "Forbidden"), code=self.code or 403)
        listed = [str(error) for error in self.errors]
        shown = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
        causes = [StatusCause(reason=error.type.value, message=error.body, field=error.field) for error in self.errors]
        details = StatusDetails(name=name, group=kind.group, kind=kind.kind, causes=causes)
        return Status(
            message=f'{kind} "{name}" is invalid: {shown}', reason=self.reason or "Invalid", code=self.code or 422, details=details
        )


class Warnings(Sequence[str]):
    """Returned by a validating hook: the write is allowed, and its author is warned (kubectl prints it).

    ``return Warnings("spec.size is deprecated, use spec.count")``. Keep them short: servers cut off long ones.
    """

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def __getitem__(self, at: Any) -> Any:
        return self.texts[at]

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"Warnings({', '.join(map(repr, self.texts))})"


def status_of(error: Denied | ApiError, kind: GroupKind, name: str) -> Status:
    """What a hook raised on purpose, as a Status; what an API server had answered to the hook passes through as it is."""
    if isinstance(error, Denied):
        return error.status(kind, name)
    given, kind_of = error.status, type(error)
    if given.code and given.reason:
        return given
    return Status(
        message=given.message, reason=given.reason or kind_of.reason, details=given.details, code=given.code or kind_of.code or 500
    )
