"""Commands of a scripted kubelet that run as processes end with the request that started them."""

from __future__ import annotations

import asyncio
import gc
import warnings

from kubeloop.testing import Terminal, run_process


async def _cancel_again_and_again(after: int) -> None:
    running = asyncio.ensure_future(run_process(["sleep", "1000"], Terminal()))
    for _ in range(after):
        await asyncio.sleep(0)
    while not running.done():
        running.cancel()
        await asyncio.sleep(0)


def test_a_process_has_ended_however_often_and_whenever_its_start_is_cancelled() -> None:
    gc.collect()
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always")
        for after in range(1, 12):
            asyncio.run(_cancel_again_and_again(after))
        gc.collect()  # a process that was not waited for warns here
    assert [str(warning.message) for warning in left] == []
