"""Who is told of changes, and how."""
