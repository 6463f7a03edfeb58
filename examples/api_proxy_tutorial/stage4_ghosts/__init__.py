"""A proxy that rewrites watch events, each on its own; and a client that is misled."""
