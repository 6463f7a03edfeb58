"""Handlers of events: their buffers, their tasks, and the processor that distributes events to them."""
