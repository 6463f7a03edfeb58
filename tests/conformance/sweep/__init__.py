"""A sweep over all built-in kinds: generated requests, what a real server answered to them, and their replay."""
