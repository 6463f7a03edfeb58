"""Tasks, waiting, and work beside the loop."""
