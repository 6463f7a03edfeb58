"""Tests of the memory of a program that ``kubeloop.run`` runs."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

_PROGRAM = """
import asyncio, ctypes, threading
import kubeloop

def allocate():
    ctypes.CDLL(None).malloc(100_000)

async def main():
    threads = [threading.Thread(target=allocate) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.fdopen(1, b"w"))
    libc.malloc_info(0, stream)
    libc.fflush(stream)

RUN(main())
"""


def heaps(run: str) -> int:
    """Return the number of pools of memory (malloc_info(3)) of a program with eight threads."""
    command = [sys.executable, "-c", _PROGRAM.replace("RUN", run)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    return len(re.findall("<heap nr", printed))


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
def test_all_threads_of_a_program_share_one_pool_of_memory() -> None:
    assert (heaps("kubeloop.run"), heaps("asyncio.run") > 1) == (1, True)


_FREEZING = """
import gc
import kubeloop

async def frozen():
    return gc.get_freeze_count()

BEFORE
print(kubeloop.run(frozen()) > 1000, gc.get_freeze_count() > 1000)
"""


@pytest.mark.parametrize(
    ("before", "printed"),
    [
        pytest.param("", "True False", id="the collector leaves out the objects from before the program, while it runs"),
        pytest.param("gc.freeze()", "True True", id="a program that has frozen objects itself keeps them frozen"),
    ],
)
def test_garbage_collection(before: str, printed: str) -> None:
    # In a separate process: pytest's own objects may be frozen, and come and go.
    command = [sys.executable, "-c", _FREEZING.replace("BEFORE", before)]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip() == printed
