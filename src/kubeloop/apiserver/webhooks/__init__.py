"""Programs that the server asks: admission webhooks, and the conversion webhooks of custom resources."""
