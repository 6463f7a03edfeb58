"""Change-based handlers (created, changed, deleted, timers), compiled onto the level-based loop, for those who come from kopf."""
