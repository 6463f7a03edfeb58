"""The runner of a controller: from events to keys, from keys to reconciles, and the handling of their results."""
