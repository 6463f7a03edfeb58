"""Info, user, negotiation, errors and answers of one request, as all layers use them."""
