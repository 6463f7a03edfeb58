"""Controllers of dynamic resource allocation."""
