"""Shows and records what Kubernetes clients send: a local TLS proxy, a live view, HAR recordings, their replay and their report."""
