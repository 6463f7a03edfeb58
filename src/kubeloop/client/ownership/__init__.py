"""Which fields of an object a field manager owns: taking them out to apply them again, and moving them from updates to applies."""
