"""Accelerated gradient descent (Nesterov, Lectures on convex optimization, 2.2.20 and 2.2.22)::

    y^t = x^t + beta_t (x^t - x^{t-1});   x^{t+1} = y^t - grad f(y^t) / L

beta = (sqrt L - sqrt mu) / (sqrt L + sqrt mu) where mu > 0.  Where mu = 0, t_1 = 1,
t_{k+1} = (1 + sqrt(1 + 4 t_k^2)) / 2 and beta_k = (t_k - 1) / t_{k+1} makes y out of the k-th iterate.
"""

import numpy as np


def agd(grads, x0, L, mu, rounds):
    """The iterates x^0, .., x^rounds, with x^{-1} = x^0."""
    old = x = np.array(x0)
    t = 1.0
    iterates = [x]
    beta = 0.0  # nothing to extrapolate from x^{-1} = x^0
    for _ in range(rounds):
        y = x + beta * (x - old)
        g = np.mean([grad(y) for grad in grads], axis=0)
        old, x = x, y - g / L
        iterates.append(x)
        if mu > 0:
            beta = (np.sqrt(L) - np.sqrt(mu)) / (np.sqrt(L) + np.sqrt(mu))
        else:
            following = (1 + np.sqrt(1 + 4 * t * t)) / 2
            beta = (t - 1) / following
            t = following
    return iterates
