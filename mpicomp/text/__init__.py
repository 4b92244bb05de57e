"""Texts to objects and back, and the classes of the user's own that a text names."""
