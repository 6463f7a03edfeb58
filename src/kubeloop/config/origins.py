"""Where a setting came from, for messages and ``ClusterConfig.explain``. Nothing here holds a value, so nothing here is a secret."""

from __future__ import annotations

import msgspec


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """``kind`` is ``file``, ``override``, ``environment``, ``service account``, ``default`` or ``program``.

    ``where`` is the file, the environment variable, or the argument; ``entry`` and ``key`` say what stands there.
    """

    kind: str
    where: str = ""
    entry: str = ""
    key: str = ""

    def __str__(self) -> str:
        if self.kind == "environment":
            return f"environment variable {self.where}"
        return ": ".join(part for part in (self.where or self.kind, self.entry, self.key) if part)


DEFAULT = Origin(kind="default")
PROGRAM = Origin(kind="program", where="the program")


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Of one configuration: the files looked at, who named them, the user entry, and an origin for each setting that was made.

    ``unused`` says in words which settings stand somewhere and have no effect, and why.
    """

    files: tuple[str, ...] = ()
    files_from: str = ""
    user: str = ""
    origins: tuple[tuple[str, Origin], ...] = ()
    unused: tuple[str, ...] = ()

    def of(self, setting: str) -> Origin | None:
        """The origin of a setting; None if none is known."""
        return next((origin for name, origin in self.origins if name == setting), None)
