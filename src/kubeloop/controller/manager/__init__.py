"""The manager and what it serves: order of start and stop, clusters, runnables, endpoints, settings, signals, metrics."""
