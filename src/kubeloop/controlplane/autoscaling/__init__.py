"""The controller of horizontal pod autoscalers."""
