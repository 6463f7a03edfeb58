"""What is seen of requests: figures, Prometheus metrics, debug records, OpenTelemetry spans. Loaded where it is used."""
