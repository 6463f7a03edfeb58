"""Change-based handlers (created, changed, deleted, timers) on top of the level-based reconcile loop, for users of kopf."""
