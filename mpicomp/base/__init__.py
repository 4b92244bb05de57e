"""The lowest layer: every other folder may import it, and it imports none of them."""
