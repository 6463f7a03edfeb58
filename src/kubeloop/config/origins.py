"""The origin of a setting, for messages and ``ClusterConfig.explain``. It contains no values, and so no secrets."""

from __future__ import annotations

import msgspec


class SettingOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of one setting. ``kind`` is ``file``, ``override``, ``environment``, ``service account``, ``default`` or ``program``.

    ``where`` is the file, the environment variable, or the argument; ``entry`` and ``key`` are the position in the file.
    """

    kind: str
    where: str = ""
    entry: str = ""
    key: str = ""

    def __str__(self) -> str:
        if self.kind == "environment":
            return f"environment variable {self.where}"
        return ": ".join(part for part in (self.where or self.kind, self.entry, self.key) if part)


DEFAULT = SettingOrigin(kind="default")
PROGRAM = SettingOrigin(kind="program", where="the program")


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The origins of one configuration: the files, where they were named, the user entry, and an origin for each setting.

    ``unused`` describes settings that have no effect, and why.
    """

    files: tuple[str, ...] = ()
    files_from: str = ""
    user: str = ""
    origins: tuple[tuple[str, SettingOrigin], ...] = ()
    unused: tuple[str, ...] = ()

    def of(self, setting: str) -> SettingOrigin | None:
        """Return the origin of a setting; None if it is unknown."""
        return next((origin for name, origin in self.origins if name == setting), None)
