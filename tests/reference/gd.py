"""Gradient descent, x+ = x - gamma mean grad f_i(x) (Nesterov, Lectures on convex optimization, 1.2.3)."""

import numpy as np


def gd(grads, x0, gamma, rounds):
    """The iterates x^0, .., x^rounds."""
    x = np.array(x0)
    iterates = [x]
    for _ in range(rounds):
        g = np.mean([grad(x) for grad in grads], axis=0)
        x = x - gamma * g
        iterates.append(x)
    return iterates
