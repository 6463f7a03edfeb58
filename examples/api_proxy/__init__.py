"""``kubeloop proxy`` at work: an unmodified load balancer that does something else because its data was rewritten, and a demo."""
