"""Applies settings to a running manager (workers, rate caps, grace period, logs), also when they change."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol, Self

import msgspec

from kubeloop.client import Client
from kubeloop.controller.manager.background import Background
from kubeloop.controller.manager.logs import LogOutput
from kubeloop.controller.manager.settings.settings import ManagerSettings, RateSettings, SettingsFile
from kubeloop.controller.runner.runnable import Runnable
from kubeloop.meta import ConfigError
from kubeloop.tasks import Supervisor
from kubeloop.timing import Clock, TokenBucket
from kubeloop.transport import logger_with_context
from kubeloop.workqueue import RateCap

_LOG = logger_with_context("kubeloop.controller.manager")

#: Seconds between two checks of the file.
PERIOD = 5.0

Apply = Callable[[ManagerSettings], str]
"""Applies one field of new settings. Returns the reason if it cannot be applied, otherwise an empty text."""


class Reloader:
    """Loads settings again when the file has changed, or on SIGHUP, within ``async with``.

    Guarantees
        Settings that cannot be read change nothing; that is logged once for each state of the file. Settings without a function in
        ``apply`` need a restart; each difference from the active ones is logged.

    Args:
        source: The file and environment.
        now: The active settings.
        apply: Name of a field, as in the file -> function that applies its new value.
        clock: Clock of the checks.
    """

    def __init__(self, source: SettingsFile, now: ManagerSettings, apply: Mapping[str, Apply], clock: Clock) -> None:
        self.current = now
        self._source = source
        self._apply = apply
        self._clock = clock
        self._stamp = source.stamp()
        self.tasks = Supervisor(clock, _LOG)
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
            _LOG.debug("SIGHUP is not handled here: %s", error)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.tasks.stop()
        finally:
            if self._installed:
                asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
                signal.signal(signal.SIGHUP, self._before)  # type: ignore[arg-type]  # what getsignal gave

    def reload(self) -> list[str]:
        """Load and apply the settings now, and log the changes.

        Returns:
            A text for each changed field, or the error of settings that cannot be read.
        """
        self._stamp = self._source.stamp()
        try:
            found = self._source.load()
        except ConfigError as error:
            _LOG.log(logging.ERROR, "keeping the previous settings: %s", error)
            return [str(error)]
        said = []
        for name, field in zip(found.__struct_encode_fields__, found.__struct_fields__, strict=True):
            if getattr(found, field) == getattr(self.current, field):
                continue
            apply = self._apply.get(name)
            why = apply(found) if apply is not None else "it needs a restart"
            said.append(f"{name} is not applied: {why}" if why else f"{name} is applied")
            _LOG.log(logging.WARNING if why else logging.INFO, "settings: %s", said[-1])
            if not why:
                self.current = _with(self.current, found, field)
        if not said:
            _LOG.info("settings: nothing has changed")
        return said

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(PERIOD)
            if self._source.stamp() != self._stamp:
                self.reload()


def _with(settings: ManagerSettings, new_settings: ManagerSettings, field: str) -> ManagerSettings:
    return msgspec.structs.replace(settings, **{field: getattr(new_settings, field)})


class ConfigurableManager(Protocol):
    """The part of a manager that settings change."""

    grace: float | None

    @property
    def runnables(self) -> Iterable[Runnable]: ...
    @property
    def client(self) -> Client: ...


class WorkersByName(Mapping[str, int]):
    """Number of workers by name of controller. The setting of ``foo`` also applies to ``foo@west``, unless ``foo@west`` has a setting."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.numbers = dict(numbers)

    def __getitem__(self, name: str) -> int:
        return self.numbers[name] if name in self.numbers else self.numbers[name.partition("@")[0]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)


class SettingsReloader:
    """Applies settings to a manager within ``async with``, and applies the settings of a file again when the file changes.

    Raises:
        ConfigError: the settings cannot be read; or, when the block is entered, workers are set for a controller that does not exist.
    """

    def __init__(self, source: SettingsFile | ManagerSettings | Path | str, clock: Clock) -> None:
        self.source: SettingsFile | None
        if isinstance(source, ManagerSettings):
            self.source, self.settings = None, source
        else:
            self.source = source if isinstance(source, SettingsFile) else SettingsFile(source)
            self.settings = self.source.load()
        self.workers = WorkersByName(self.settings.workers)
        rate = self.settings.reconciles
        self.cap = RateCap(rate.per_second, rate.burst, clock) if rate is not None else None
        self._clock = clock
        self._stack = AsyncExitStack()
        self._output: LogOutput | None = None
        self._manager: ConfigurableManager | None = None
        self._grace: float | None = None
        self.reloader: Reloader | None = None

    @property
    def tasks(self) -> Supervisor | None:
        """The supervisor of the task that polls the file; None before the block, and without a file."""
        return self.reloader.tasks if self.reloader is not None else None

    def for_manager(self, manager: ConfigurableManager) -> Self:
        """Set the manager whose settings to apply, and return this object. Called once, before the block is entered."""
        self._manager, self._grace = manager, manager.grace
        return self

    async def __aenter__(self) -> Self:
        settings = self.settings
        if why := self._unknown(settings):
            raise ConfigError(f"settings{f' {self.source.path}' if self.source is not None and self.source.path else ''}: workers: {why}")
        if settings.log_level is not None or settings.log_format is not None:
            self._output = LogOutput(settings.log_format or "text", settings.log_level or "info")
            self._stack.callback(self._output.close)
        if settings.requests is not None:
            self._limit(settings.requests)
        if self.source is not None:
            apply = {
                "workers": self._set_workers,
                "reconciles": self._set_cap,
                "requests": self._set_requests,
                "grace": self._set_grace,
                "logLevel": self._set_log,
                "logFormat": self._set_log,
            }
            self.reloader = await self._stack.enter_async_context(Reloader(self.source, settings, apply, self._clock))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def _governed(self) -> ConfigurableManager:
        assert self._manager is not None
        return self._manager

    def _unknown(self, settings: ManagerSettings) -> str:
        names = [one.name for one in self._governed.runnables if not isinstance(one, Background)]
        known = {*names, *(name.partition("@")[0] for name in names)}
        for name in settings.workers:
            if name not in known:
                return f'there is no controller "{name}"; there are: {", ".join(names) or "none"}'
        return ""

    def _set_workers(self, settings: ManagerSettings) -> str:
        if why := self._unknown(settings):
            return why
        self.workers.numbers = dict(settings.workers)
        for runnable in self._governed.runnables:
            resize = getattr(runnable, "resize", None)
            if resize is not None:
                resize(self.workers.get(runnable.name))
        return ""

    def _set_cap(self, settings: ManagerSettings) -> str:
        if self.cap is None or settings.reconciles is None:
            return "adding or removing a cap needs a restart"
        self.cap.change(settings.reconciles.per_second, settings.reconciles.burst)
        return ""

    def _set_requests(self, settings: ManagerSettings) -> str:
        self._limit(settings.requests)
        return ""

    def _limit(self, rate: RateSettings | None) -> None:
        bucket = TokenBucket(rate.per_second, rate.burst, self._clock) if rate is not None else None
        self._governed.client.transport.limit(bucket)

    def _set_grace(self, settings: ManagerSettings) -> str:
        wanted = self._grace if settings.grace is None else settings.grace
        self._governed.grace = wanted if wanted is None or wanted >= 0 else None
        return ""

    def _set_log(self, settings: ManagerSettings) -> str:
        if self._output is None:
            return "the program writes its own log; letting the manager write it needs a restart"
        self._output.set(settings.log_format or "text", settings.log_level or "info")
        return ""
