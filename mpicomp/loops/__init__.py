"""Rounds inside a loop of the user's own: an estimate of the mean gradient, or a method step by step."""
