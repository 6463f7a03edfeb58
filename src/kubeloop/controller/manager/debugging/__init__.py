"""The debug pages of a manager: what the process does now, where its time and memory go, and how much it says about it."""
