"""SPDY/3 frames: packed frames are unpacked, wherever the bytes are cut, and other bytes are refused."""

from __future__ import annotations

import contextlib
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.serving.spdy.frames import DICTIONARY, Frame, Kind, Packer, SpdyError, Unpacker

_NAMES = st.text(alphabet="abcdefghijklmnopqrstuvwxyz-0123456789", min_size=1, max_size=12)
_HEADERS = st.dictionaries(_NAMES, st.text(max_size=20), max_size=5)
_STREAMS = st.integers(1, (1 << 31) - 1)

_FRAMES = st.one_of(
    st.builds(lambda number, data, fin: Frame(Kind.DATA, number, fin, None, data), _STREAMS, st.binary(max_size=100), st.booleans()),
    st.builds(lambda number, headers, fin: Frame(Kind.SYN_STREAM, number, fin, headers), _STREAMS, _HEADERS, st.booleans()),
    st.builds(lambda number, headers: Frame(Kind.SYN_REPLY, number, False, headers), _STREAMS, _HEADERS),
    st.builds(lambda number: Frame(Kind.RST_STREAM, number), _STREAMS),
    st.builds(lambda number: Frame(Kind.PING, number), st.integers(0, (1 << 32) - 1)),
    st.builds(lambda number: Frame(Kind.GOAWAY, number), _STREAMS),
)


def packed(frame: Frame, packer: Packer) -> bytes:
    match frame.kind:
        case Kind.DATA:
            return packer.data(frame.number, frame.data, fin=frame.fin)
        case Kind.SYN_STREAM:
            return packer.syn_stream(frame.number, frame.headers or {}, fin=frame.fin)
        case Kind.SYN_REPLY:
            return packer.syn_reply(frame.number, frame.headers or {})
        case Kind.RST_STREAM:
            return packer.rst_stream(frame.number, 1)
        case Kind.PING:
            return packer.ping(frame.number)
        case _:
            return packer.goaway(frame.number)


@given(frames=st.lists(_FRAMES, max_size=8), cut=st.integers(1, 50))
@settings(max_examples=60)
def test_frames_come_back_wherever_the_bytes_are_cut(frames: list[Frame], cut: int) -> None:
    packer, unpacker = Packer(), Unpacker()
    data = b"".join(packed(frame, packer) for frame in frames)
    found = [frame for at in range(0, len(data), cut) for frame in unpacker.feed(data[at : at + cut])]
    assert found == frames


@given(data=st.binary(max_size=200))
@settings(max_examples=100)
def test_whatever_comes_is_a_frame_or_an_error(data: bytes) -> None:
    with contextlib.suppress(SpdyError):
        list(Unpacker().feed(data))


def test_the_dictionary_is_that_of_the_draft() -> None:
    # Adler-32 of the dictionary is what a zlib stream names it by; the draft's own is this.
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2)


def test_header_names_go_out_in_lower_case() -> None:
    (frame,) = Unpacker().feed(Packer().syn_stream(1, {"StreamType": "Error"}))
    assert frame.headers == {"streamtype": "Error"}


def _block(plain: bytes) -> bytes:
    deflate = zlib.compressobj(zdict=DICTIONARY)
    return deflate.compress(plain) + deflate.flush(zlib.Z_SYNC_FLUSH)


def _syn(block: bytes) -> bytes:
    body = struct.pack(">IIBB", 1, 0, 0, 0) + block
    return struct.pack(">HHI", 0x8003, 1, len(body)) + body


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">HHI", 0x8002, 1, 4) + b"\0\0\0\1", id="another version"),
        pytest.param(struct.pack(">HHI", 0x8003, 3, 2) + b"\0\0", id="a frame without its stream"),
        pytest.param(struct.pack(">II", 1, 0xFFFFFF), id="a frame that is too long to be kept"),
        pytest.param(_syn(b"no zlib"), id="headers that are not compressed"),
        pytest.param(_syn(_block(struct.pack(">II", 1, 99) + b"x")), id="a header that ends early"),
        pytest.param(_syn(_block(struct.pack(">I", 1 << 31))), id="more headers than there are"),
        pytest.param(_syn(_block(struct.pack(">II", 1, 1 << 20) + b"x" * (1 << 20))), id="headers that unpack without end"),
    ],
)
def test_bytes_that_are_no_spdy_are_refused(data: bytes) -> None:
    with pytest.raises(SpdyError):
        list(Unpacker().feed(data))


@pytest.mark.parametrize("kind", [Kind.SETTINGS, Kind.WINDOW_UPDATE, 11])
def test_unused_frame_types_are_passed_over(kind: int) -> None:
    unpacker, packer = Unpacker(), Packer()
    assert list(unpacker.feed(struct.pack(">HHI", 0x8003, kind, 8) + bytes(8) + packer.ping(2))) == [Frame(Kind.PING, 2)]
