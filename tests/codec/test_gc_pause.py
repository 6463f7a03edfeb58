from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kubeloop.codec import decode_list
from kubeloop.codec.gc_pause import gc_paused
from kubeloop.meta import DecodeError, Unstructured


@pytest.fixture(params=[True, False], ids=["collecting", "not collecting"])
def collecting(request: pytest.FixtureRequest) -> Iterator[object]:
    was = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if was else gc.disable)()


def test_the_collector_is_paused_and_afterwards_as_it_was(collecting: bool) -> None:
    with gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled() == collecting


def test_a_page_that_cannot_be_read_ends_the_pause(collecting: bool) -> None:
    with pytest.raises(DecodeError):
        decode_list(Unstructured.for_kind("v1", "Pod"), b'{"items":[{"metadata":1}]}')
    assert gc.isenabled() == collecting


def test_the_last_to_leave_puts_the_collector_back(collecting: bool) -> None:
    with gc_paused():
        with gc_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled() == collecting
