"""The embedded API server: its parts put together, the pipeline of a request, and the paths that are no resources."""

from kubeloop.apiserver.server.api_server import CONTROLLERS, HOST, MIN_REQUEST_TIMEOUT, ApiServer, ServerOptions

__all__ = ["CONTROLLERS", "HOST", "MIN_REQUEST_TIMEOUT", "ApiServer", "ServerOptions"]
