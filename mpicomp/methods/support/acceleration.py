"""The weights of accelerated gradient descent, Nesterov's, for convex and for strongly convex f."""

from __future__ import annotations

from math import sqrt


def next_weight(t: float) -> float:
    """t_{k+1} = (1 + √(1 + 4 t_k²))/2, which is (k+3)/2 and more from t_0 = 1."""
    return (1 + sqrt(1 + 4 * t**2)) / 2


def extrapolation(t: float, gamma: float, mu: float) -> float:
    """β_k of y^{k+1} = x^{k+1} + β_k (x^{k+1} - x^k), from t = t_k; a mu above 0 makes it constant."""
    root = sqrt(gamma * mu)
    return (1 - root) / (1 + root) if mu > 0 else (t - 1) / next_weight(t)
