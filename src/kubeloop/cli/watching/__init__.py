"""What ``kubeloop watch`` shows: differences between two states of an object, and how they are printed."""
