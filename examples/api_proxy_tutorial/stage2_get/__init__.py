"""A proxy that rewrites single pods."""
