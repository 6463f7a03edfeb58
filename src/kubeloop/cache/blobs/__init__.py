"""What is kept of an object, decoded and packed."""
