"""Limits of requests: a bound on concurrent requests, and a back-off from a failing server."""
