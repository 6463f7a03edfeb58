"""Custom resources: definitions are checked, names granted, and their objects served by structural schemas."""
