"""SPDY/3.1 as in Kubernetes: many streams in one upgraded connection, for exec, attach and port-forward.

Frames and headers follow the SPDY/3 draft. As in all Kubernetes components, there are no flow control windows, push and settings.
"""

from kubeloop.serving.spdy.connection import ConnectionOver, SpdyConnection, SpdyStream, StreamReset
from kubeloop.serving.spdy.frames import SpdyError

#: The name of the protocol in the ``Upgrade`` header.
PROTOCOL = "SPDY/3.1"
#: Headers of upgrade requests and responses that name the protocol inside the streams.
STREAM_PROTOCOL = "X-Stream-Protocol-Version"

__all__ = ["PROTOCOL", "STREAM_PROTOCOL", "ConnectionOver", "SpdyConnection", "SpdyError", "SpdyStream", "StreamReset"]
