"""The error of a patch that cannot be applied, with the response of an API server."""

from __future__ import annotations

from kubeloop.meta.errors import KubeloopError


class PatchError(KubeloopError):
    """A patch is malformed or does not fit the document; the document is unchanged.

    ``str()`` gives the reason, with the message of Kubernetes' patch libraries. ``code`` is the HTTP status of an API server's response:
    400 malformed, 413 too many operations, 422 does not apply, 500 where upstream does not map the error.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code

    @property
    def reason(self) -> str:
        """The reason of the Status; empty for 500, as upstream leaves it."""
        return {400: "BadRequest", 413: "RequestEntityTooLarge", 422: "Invalid"}.get(self.code, "")

    @property
    def answer(self) -> str:
        """The message of the Status. It is generic for 422, because an API server does not publish why a patch does not apply."""
        return "the server rejected our request due to an error in our request" if self.code == 422 else str(self)
