"""gzip as it comes: the same text wherever it is cut, and never more than the bound."""

from __future__ import annotations

import gzip
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.transport.connection import BodyDecompressor, TooLargeError, UnpackError


def unpacked(body: bytes, cuts: list[int], limit: int) -> bytes:
    unpacking = BodyDecompressor("gzip", limit)
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(body)), len(body)]
    for start, end in itertools.pairwise(edges):
        unpacking.feed(body[start:end])
    return unpacking.finish()


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=400), max_size=4), st.lists(st.integers(0, 900), max_size=12))
def test_several_members_cut_anywhere_are_one_text(texts: list[bytes], cuts: list[int]) -> None:
    body, whole = b"".join(map(gzip.compress, texts)), b"".join(texts)
    assert unpacked(body, cuts, max(len(whole), 1)) == whole


@settings(max_examples=60)
@given(st.binary(min_size=1, max_size=2000), st.lists(st.integers(0, 900), max_size=8), st.data())
def test_one_byte_above_the_bound_is_too_much(text: bytes, cuts: list[int], data: st.DataObject) -> None:
    limit = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(TooLargeError):
        unpacked(gzip.compress(text), cuts, limit)


@settings(max_examples=60)
@given(st.binary(max_size=300), st.integers(1, 40))
def test_an_end_that_is_missing_is_an_error(text: bytes, missing: int) -> None:
    body = gzip.compress(text)
    with pytest.raises(UnpackError):
        unpacked(body[: -min(missing, len(body) - 1)], [], 1000)


def test_an_empty_body_is_empty() -> None:
    assert BodyDecompressor("gzip", 1).finish() == b""
