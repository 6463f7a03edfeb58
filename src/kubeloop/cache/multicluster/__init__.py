"""Informers over several clusters, and of kinds that come and go."""
