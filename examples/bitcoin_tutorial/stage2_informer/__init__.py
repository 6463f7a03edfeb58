"""Stage 2: an informer whose handlers and workers print what they get."""
