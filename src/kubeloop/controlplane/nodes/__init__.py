"""Controllers that monitor nodes, and evict or delete the pods of nodes that are not ready or missing."""
