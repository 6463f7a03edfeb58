"""Where the embedded servers of a run keep objects: in memory, or with KUBELOOP_TEST_STORAGE=sqlite in files. Suites pass on both."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from kubeloop.testing import LocalCluster, TlsTestServer

VARIABLE = "KUBELOOP_TEST_STORAGE"


def choose_storage(config: pytest.Config) -> None:
    """Until the run ends. Raises pytest.UsageError for a storage that is none."""
    wanted = os.environ.get(VARIABLE, "memory")
    if wanted not in ("memory", "sqlite"):
        raise pytest.UsageError(f"{VARIABLE}={wanted}: choose memory or sqlite")
    if wanted == "sqlite":
        patch = pytest.MonkeyPatch()
        folder = tempfile.TemporaryDirectory(prefix="kubeloop-stores-")
        config.add_cleanup(folder.cleanup)
        config.add_cleanup(patch.undo)
        _in_files(patch, folder.name)


def _in_files(patch: pytest.MonkeyPatch, folder: str) -> None:
    """Servers that name no folder get a new one at each start."""
    make, launch = TlsTestServer.__init__, LocalCluster._launch

    @functools.wraps(make)
    def made(self: TlsTestServer, *, data: Path | None = None, **options: Any) -> None:
        make(self, data=data or Path(tempfile.mkdtemp(dir=folder)), **options)

    @functools.wraps(launch)
    def launched(self: LocalCluster, port: int) -> None:
        if "--data" not in self._options:
            self._options += ["--data", str(self._path("data"))]
        elif self._options[self._options.index("--data") + 1] == str(self._path("data")):
            shutil.rmtree(self._path("data"))
        launch(self, port)

    patch.setattr(TlsTestServer, "__init__", made)
    patch.setattr(LocalCluster, "_launch", launched)
