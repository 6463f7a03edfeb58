"""Observation of requests: counters, Prometheus metrics, debug records, OpenTelemetry spans. Loaded on demand."""
