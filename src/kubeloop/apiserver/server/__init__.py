"""The embedded API server: construction of its parts, the pipeline of a request, and the non-resource paths."""

from kubeloop.apiserver.server.api_server import CONTROLLERS, HOST, MIN_REQUEST_TIMEOUT, ApiServer, ServerOptions

__all__ = ["CONTROLLERS", "HOST", "MIN_REQUEST_TIMEOUT", "ApiServer", "ServerOptions"]
