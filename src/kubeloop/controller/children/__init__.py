"""What an object is made of: its children applied as a set, pruned, compared with what is there, and waited for."""
