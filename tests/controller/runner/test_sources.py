"""Own sources: each key of a channel is reconciled; a channel that breaks is opened again, or stops the controller with its reason."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.controller import Channel, SourceError
from kubeloop.controller.runner.watches import ChannelReader
from kubeloop.meta import ObjectKey, ObjectMeta
from kubeloop.timing import FakeClock

KEY = ObjectKey("", "shop", "web")


class Taken:
    """What sources have put into a queue."""

    def __init__(self, *channels: Channel[Any]) -> None:
        self.clock = FakeClock()
        self.added: list[tuple[str, int]] = []
        self.sources = ChannelReader("Fed", channels, lambda key, after, priority: self.added.append((str(key), priority)), self.clock)

    async def __aenter__(self) -> Self:
        self.sources.start()
        await self.clock.advance(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.sources.close()


def iterated(*items: Any, error: Exception | None = None) -> Callable[[], AsyncIterator[Any]]:
    async def items_of() -> AsyncIterator[Any]:
        for item in items:
            yield item
        if error is not None:
            raise error

    return items_of


@pytest.mark.parametrize(
    ("channel", "expected"),
    [
        pytest.param(Channel(iterated(KEY)), [("shop/web", 0)], id="keys"),
        pytest.param(Channel(iterated(KEY)()), [("shop/web", 0)], id="an iterator that is open"),
        pytest.param(Channel(iterated(KEY, KEY), priority=5), [("shop/web", 5)] * 2, id="with a priority"),
        pytest.param(
            Channel(iterated(ConfigMap(metadata=ObjectMeta(name="c", namespace="shop")))),
            [("shop/c", 0)],
            id="objects stand for themselves",
        ),
        pytest.param(
            Channel(iterated("a", "b"), to=lambda text: [ObjectKey("", "x", text)]), [("x/a", 0), ("x/b", 0)], id="anything with a mapping"
        ),
    ],
)
async def test_items(channel: Channel[Any], expected: list[tuple[str, int]]) -> None:
    async with Taken(channel) as taken:
        assert taken.added == expected


async def test_a_queue_is_read_as_it_fills() -> None:
    items: asyncio.Queue[ObjectKey] = asyncio.Queue()
    async with Taken(Channel(items)) as taken:
        assert taken.added == []
        items.put_nowait(KEY)
        await taken.clock.advance(0)
        assert taken.added == [("shop/web", 0)]


async def test_an_item_that_names_nothing_is_left_out_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    async with Taken(Channel(iterated(5, KEY), name="numbers")) as taken:
        assert taken.added == [("shop/web", 0)]
    assert "source numbers of Fed: skipped an item that cannot be mapped" in caplog.text
    assert "does not name an object; yield ObjectKeys or objects, or map the items with Channel(..., to=)" in caplog.text


async def test_a_function_whose_iterator_breaks_is_called_again_with_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    async with Taken(Channel(iterated(KEY, error=OSError("gone")))) as taken:
        assert len(taken.added) == 1
        await taken.clock.advance(10)
        assert len(taken.added) > 2
    assert "source channel of Fed broke: OSError: gone; reopening it in" in caplog.text
    assert caplog.text.count("Traceback") == 1, "of the first of equal failures"


async def test_an_iterator_that_breaks_stops_the_work_and_says_how_to_have_it_opened_again() -> None:
    gate: asyncio.Queue[ObjectKey] = asyncio.Queue()
    stopped = asyncio.Event()

    async def broken() -> AsyncIterator[ObjectKey]:
        yield await gate.get()
        raise OSError("gone")

    async def work() -> None:
        await stopped.wait()

    async with Taken(Channel(broken(), name="wire")) as taken:
        working = asyncio.ensure_future(taken.sources.beside(work(), stopped.set))
        await taken.clock.advance(0)
        assert not working.done()
        gate.put_nowait(KEY)
        with pytest.raises(SourceError, match=r"source wire of Fed broke: OSError: gone.*Pass Channel a function that opens the source"):
            await asyncio.wait_for(working, 10)


async def test_an_iterator_that_broke_before_the_work_began_stops_it_too() -> None:
    stopped = asyncio.Event()

    async def work() -> None:
        await stopped.wait()

    async with Taken(Channel(iterated(error=OSError("gone"))())) as taken:
        with pytest.raises(SourceError, match="gone"):
            await asyncio.wait_for(taken.sources.beside(work(), stopped.set), 10)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1)], ids=["cancelled", "exit"])
async def test_an_iterator_that_is_cancelled_from_within_or_exits_does_not_end_in_silence(error: BaseException) -> None:
    stopped = asyncio.Event()

    async def broken() -> AsyncIterator[ObjectKey]:
        yield KEY
        raise error

    async def work() -> None:
        await stopped.wait()

    async with Taken(Channel(broken(), name="wire")) as taken:
        with pytest.raises(SourceError, match=f"source wire of Fed broke: {type(error).__name__}"):
            await asyncio.wait_for(taken.sources.beside(work(), stopped.set), 10)


async def test_a_mapping_that_gives_something_else_than_keys_is_named_and_costs_that_item_only(caplog: pytest.LogCaptureFixture) -> None:
    async with Taken(Channel(iterated("shop/a", KEY), to=lambda item: [item], name="wire")) as taken:
        assert taken.added == [("shop/web", 0)]
    assert "to= of source wire returned a list of 1 item for a text of 6 characters; return ObjectKeys" in caplog.text


@pytest.mark.parametrize("source", [[KEY], queue.Queue()], ids=["a list", "a queue of threads"])
def test_what_cannot_be_read_is_refused_at_once(source: Any) -> None:
    with pytest.raises(TypeError, match=r"name='wire'\): give an asyncio.Queue, an async iterator, or a function that opens one"):
        Channel(source, name="wire")


async def test_a_source_that_ends_is_not_opened_again() -> None:
    async with Taken(Channel(iterated(KEY))) as taken:
        await taken.clock.advance(1000)
        assert len(taken.added) == 1
        await taken.sources.beside(asyncio.sleep(0), lambda: None)
