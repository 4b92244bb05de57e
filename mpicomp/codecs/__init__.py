"""Message formats: encode index sets, values and symbols as bytes, and decode them."""
