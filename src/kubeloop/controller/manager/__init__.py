"""The manager: start and stop in order, clusters, runnables, HTTP endpoints, settings, signals and metrics."""
