"""A proxy that rewrites lists of pods too."""
