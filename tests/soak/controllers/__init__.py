"""Controllers in several replicas under faults and kills: ``python -m tests.soak.controllers``."""
