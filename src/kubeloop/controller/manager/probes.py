"""Probes: /healthz and /readyz as Kubernetes' own servers answer them: named checks, ?verbose, ?exclude=NAME, /healthz/NAME.

Source: Kubernetes API health endpoints; controller-runtime pkg/healthz.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from kubeloop.meta import KubeloopError
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.timing import Clock, SystemClock, TimeLimit
from kubeloop.transport import logger_with_context

log = logger_with_context("kubeloop.controller.manager")

Check: TypeAlias = Callable[[], Awaitable[None] | None]
"""A check raises if it fails; a plain function, or an async one."""

#: Seconds after which an async check has failed.
PATIENCE = 10.0


class Unhealthy(KubeloopError):
    """The failure of a check, in its own words."""


class HealthProbe:
    """One endpoint and its checks.

    Guarantees
        A request for one check, and the log, get the failure in words; the public summary withholds it.
        A check that hangs has failed after ``PATIENCE`` seconds, and holds up no other.
    """

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self.name = name
        self._checks: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """Ask ``check`` from now on.

        Raises:
            ValueError: there is one of that name, or the name cannot stand in a path.
        """
        if not name or "/" in name or name in self._checks:
            why = "is there already" if name in self._checks else "cannot stand in a path"
            raise ValueError(f'/{self.name}: a check named "{name}" {why}; give it another name')
        self._checks[name] = check

    async def answer(self, request: Request) -> Answer | None:
        """None where the path is not of this probe."""
        path = request.path.rstrip("/")
        if path == f"/{self.name}":
            return await self._summary(request)
        if path.startswith(f"/{self.name}/"):
            return await self._one(path.removeprefix(f"/{self.name}/"))
        return None

    async def failures(self) -> dict[str, str]:
        """Return the failures, by name of check."""
        names = list(self._checks)
        failures = await asyncio.gather(*(self._ask(name) for name in names))
        return {name: why for name, why in zip(names, failures, strict=True) if why}

    async def _summary(self, request: Request) -> Answer:
        excluded = set(request.query.get("exclude", []))
        names = [name for name in self._checks if name not in excluded]
        failures = dict(zip(names, await asyncio.gather(*(self._ask(name) for name in names)), strict=True))
        failed = {name: why for name, why in failures.items() if why}
        if failed:
            log.warning("%s check failed: %s", self.name, "; ".join(f"{name}: {why}" for name, why in failed.items()))
        elif "verbose" not in request.query:
            return _text("ok")
        lines = []
        for name in self._checks or ("ping",):
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
            elif name in failed:
                lines.append(f"[-]{name} failed: reason withheld")
            else:
                lines.append(f"[+]{name} ok")
        if unknown := sorted(excluded - set(self._checks)):
            quoted = ", ".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
        lines.append(f"{self.name} check {'failed' if failed else 'passed'}\n")
        return _text("\n".join(lines), 500 if failed else 200)

    async def _one(self, name: str) -> Answer:
        if name == "ping" and not self._checks:
            return _text("ok")
        if name not in self._checks:
            known = ", ".join(self._checks)
            return _text(f'404 page not found: no check "{name}"; there are: {known}\n', 404)
        why = await self._ask(name)
        return _text(f"internal server error: {why}\n", 500) if why else _text("ok")

    async def _ask(self, name: str) -> str:
        """Return the failure; empty if there is none."""
        try:
            async with TimeLimit(self._clock, PATIENCE):
                asked = self._checks[name]()
                if inspect.isawaitable(asked):
                    await asked
        except KubeloopError as error:
            return str(error)
        except TimeoutError:
            return f"no answer within {PATIENCE:g} s"
        except Exception as error:  # noqa: BLE001 - whatever a check raises says that it failed
            return str(error) or type(error).__name__
        return ""


def _text(body: str, status: int = 200) -> Answer:
    return Answer(status, body=body.encode(), content_type="text/plain; charset=utf-8", headers=[("X-Content-Type-Options", "nosniff")])
