"""A proxy that rewrites the Tables of kubectl."""
