"""Files that hold secrets: readable by their owner only, and never half-written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_secret(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` with mode 0600, atomically: readers see the old file or the whole new one.

    Raises:
        OSError: the folder does not exist or is not writable; nothing is left behind then.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp creates with mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
