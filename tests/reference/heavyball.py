"""The heavy ball (Polyak 1964), in two steps::

x^{k+1} = x^k - gamma grad f(x^k) + beta (x^k - x^{k-1}),   x^{-1} = x^0
"""

import numpy as np


def heavyball(grads, x0, gamma, beta, rounds):
    """The iterates x^0, .., x^rounds."""
    old = x = np.array(x0)
    iterates = [x]
    for _ in range(rounds):
        g = np.mean([grad(x) for grad in grads], axis=0)
        old, x = x, x - gamma * g + beta * (x - old)
        iterates.append(x)
    return iterates
