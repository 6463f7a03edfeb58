"""Controllers that watch over nodes and the pods of lost nodes."""
