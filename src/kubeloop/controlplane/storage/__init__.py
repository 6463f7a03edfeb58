"""Controllers of persistent volumes and their claims."""
