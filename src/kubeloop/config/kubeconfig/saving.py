"""Kubeconfig files on disk: written whole or not at all, for their owner only, and by one program at a time.

Source: client-go tools/clientcmd/loader.go (lockFile): whoever changes ``config`` creates ``config.lock`` first.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kubeloop.meta.errors import ConfigError

_PAUSE = 0.05


@contextmanager
def locked(files: Iterable[Path], wait: float) -> Iterator[None]:
    """Hold the locks of all files, taken in one order by everybody. Blocks up to ``wait`` seconds for each.

    Raises:
        ConfigError: another program holds one, or it cannot be made.
    """
    with ExitStack() as held:
        for file in sorted(files):
            held.enter_context(_locked(file, wait))
        yield


@contextmanager
def _locked(file: Path, wait: float) -> Iterator[None]:
    if not file.name:
        raise ConfigError(f'kubeconfig: "{file}" is a folder or empty; name a file')
    lock = file.with_name(f"{file.name}.lock")
    until = time.monotonic() + wait
    while True:
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            break
        except FileExistsError as error:
            if time.monotonic() >= until:
                raise ConfigError(
                    f"{file}: another program is changing it ({lock.name} exists); try again, or delete {lock} if none is"
                ) from error
            time.sleep(_PAUSE)
        except OSError as error:
            raise ConfigError(f"{lock}: cannot be created ({error.strerror}); check the folder and its permissions") from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Write with mode 0600, atomically: readers see the old file or the whole new one. A link stays one: what it points to is replaced.

    Raises:
        ConfigError: it cannot be written; the old file is as it was.
    """
    target = path.resolve()
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # mkstemp creates with mode 0600
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ConfigError(f"{path}: cannot be written ({error.strerror}); check the folder and its permissions") from error
        raise
