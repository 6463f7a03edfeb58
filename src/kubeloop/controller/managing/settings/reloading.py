"""Takes changed settings over while the manager runs: what can be, is; what cannot is named, and waits for a restart."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping
from typing import Self

import msgspec

from kubeloop.controller.managing.settings.loading import SettingsFile
from kubeloop.controller.managing.settings.model import ManagerSettings
from kubeloop.meta import ConfigError
from kubeloop.tasks import Supervisor
from kubeloop.timing import Clock
from kubeloop.transport import logger_with_context

log = logger_with_context(__name__)

#: Seconds between two looks at the file.
PERIOD = 5.0

Apply = Callable[[ManagerSettings], str]
"""Takes one field over from the new settings; returns why it cannot, or nothing."""


class Reloader:
    """Loads again when the file has changed, or SIGHUP comes, while its block lasts.

    Guarantees
        Settings that cannot be read change nothing; that is logged once for each state of the file. ``apply`` is by name of field, as in
        the file; what is not in it needs a restart, and is named each time it differs from what is in force.
    """

    def __init__(self, source: SettingsFile, now: ManagerSettings, apply: Mapping[str, Apply], clock: Clock) -> None:
        self.current = now
        self._source = source
        self._apply = apply
        self._clock = clock
        self._stamp = source.stamp()
        self.tasks = Supervisor(clock, log)
        self._before: object = None
        self._installed = False

    async def __aenter__(self) -> Self:
        if self._source.path is not None:
            self.tasks.start(self._watch, name="settings")
        loop = asyncio.get_running_loop()
        try:
            self._before = signal.getsignal(signal.SIGHUP)
            loop.add_signal_handler(signal.SIGHUP, self.reload)
            self._installed = True
        except (AttributeError, ValueError, RuntimeError, NotImplementedError) as error:
            log.debug("SIGHUP is not handled here: %s", error)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.tasks.stop()
        finally:
            if self._installed:
                asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
                signal.signal(signal.SIGHUP, self._before)  # type: ignore[arg-type]  # what getsignal gave

    def reload(self) -> list[str]:
        """Load now; what was said in the log: one line for each field that differs."""
        self._stamp = self._source.stamp()
        try:
            found = self._source.load()
        except ConfigError as error:
            log.log(logging.ERROR, "settings stay as they are: %s", error)
            return [str(error)]
        said = []
        for name, field in zip(found.__struct_encode_fields__, found.__struct_fields__, strict=True):
            if getattr(found, field) == getattr(self.current, field):
                continue
            apply = self._apply.get(name)
            why = apply(found) if apply is not None else "it needs a restart"
            said.append(f"{name} is not taken over: {why}" if why else f"{name} is taken over")
            log.log(logging.WARNING if why else logging.INFO, "settings: %s", said[-1])
            if not why:
                self.current = _with(self.current, found, field)
        if not said:
            log.info("settings: nothing has changed")
        return said

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(PERIOD)
            if self._source.stamp() != self._stamp:
                self.reload()


def _with(settings: ManagerSettings, found: ManagerSettings, field: str) -> ManagerSettings:
    return msgspec.structs.replace(settings, **{field: getattr(found, field)})
