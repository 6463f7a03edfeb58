"""The reflector: decides which list or watch to request next, requests it, and passes the objects to a store."""
