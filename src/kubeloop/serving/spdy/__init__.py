"""SPDY/3.1 as Kubernetes uses it: many streams in one upgraded connection, for exec, attach and port-forward.

Frames and headers as in the SPDY/3 draft; like every Kubernetes component, without flow control windows, push and settings.
"""

from kubeloop.serving.spdy.connection import Connection, ConnectionOver, Stream, StreamReset
from kubeloop.serving.spdy.frames import SpdyError

#: What ``Upgrade`` says for it.
PROTOCOL = "SPDY/3.1"
#: Headers of upgrade requests and their answers that name the protocol inside the streams.
STREAM_PROTOCOL = "X-Stream-Protocol-Version"

__all__ = ["PROTOCOL", "STREAM_PROTOCOL", "Connection", "ConnectionOver", "SpdyError", "Stream", "StreamReset"]
