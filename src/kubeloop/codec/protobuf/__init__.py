"""Kubernetes' protobuf encoding: converts built-in kinds between bytes and JSON trees, driven by one table."""

from kubeloop.codec.protobuf.envelope import (
    MEDIA_TYPE,
    Envelope,
    decode,
    decode_event,
    decode_message,
    encode,
    encode_event,
    encode_list,
    encode_message,
    has_protobuf,
    kind_of,
    open_envelope,
    split_frames,
    wrapped,
)
from kubeloop.codec.protobuf.wire import EncodeError

__all__ = [
    "MEDIA_TYPE",
    "EncodeError",
    "Envelope",
    "decode",
    "decode_event",
    "decode_message",
    "encode",
    "encode_event",
    "encode_list",
    "encode_message",
    "has_protobuf",
    "kind_of",
    "open_envelope",
    "split_frames",
    "wrapped",
]
