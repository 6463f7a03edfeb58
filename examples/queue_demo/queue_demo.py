"""A work queue with one writer and one reader: five words go in, and come out in their order when the reader is ready for them."""

import asyncio
from collections.abc import Callable

from kubeloop.timing import Clock, SystemClock
from kubeloop.workqueue import QueueShutDown, WorkQueue

SENTENCE = "this is a complete sentence"


async def write(queue: WorkQueue[str]) -> None:
    for word in SENTENCE.split():
        queue.add(word)
        await asyncio.sleep(0)  # Let other tasks run: the queue holds the words until a reader takes them.
    # Nothing more will come. The reader still gets everything that waits, and then ends: no sentinel, no guessed pause.
    queue.shut_down()


async def read(queue: WorkQueue[str], clock: Clock, show: Callable[[str], object]) -> None:
    await clock.sleep(3)
    while True:
        try:
            word = await queue.get()
        except QueueShutDown:
            return
        show(word)
        queue.done(word)


async def demo(clock: Clock, show: Callable[[str], object]) -> None:
    queue = WorkQueue[str](clock=clock)
    async with asyncio.TaskGroup() as group:
        group.create_task(write(queue))
        group.create_task(read(queue, clock, show))


if __name__ == "__main__":
    asyncio.run(demo(SystemClock(), print))
