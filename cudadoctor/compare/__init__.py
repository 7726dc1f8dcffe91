"""Two machines or more: what differs and matters."""
