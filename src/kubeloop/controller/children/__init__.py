"""The children of an object: applied as a set, pruned, compared with the server's state, and waited for."""
