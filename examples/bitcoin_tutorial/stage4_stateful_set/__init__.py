"""Stage 4: a headless Service and a StatefulSet, which give each daemon a stable name."""
