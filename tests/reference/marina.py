"""MARINA (Gorbunov, Burlachenko, Li, Richtarik, ICML 2021, Algorithm 1)::

    g^0 = grad f(x^0)
    round k    x^{k+1} = x^k - gamma g^k
    c = 1      worker i sends grad f_i(x^{k+1}), dense;                g^{k+1} = mean
    c = 0      worker i sends C_i(grad f_i(x^{k+1}) - grad f_i(x^k));  g^{k+1} = g^k + mean

c ~ Bern(p) is common to all workers.  Messages and coins are numbered by the g that they make.
"""

import numpy as np


def marina(grads, x0, gamma, compress, coin, rounds, dense=lambda i, v: v):
    """The iterates x^0, .., x^rounds.  ``coin(k)`` is c for g^k; ``dense(i, v)`` a dense v as it arrives."""
    x = np.array(x0)
    g = np.mean([dense(i, grad(x)) for i, grad in enumerate(grads)], axis=0)
    iterates = [x]
    for k in range(rounds):
        new = x - gamma * g
        if coin(k + 1):
            g = np.mean([dense(i, grad(new)) for i, grad in enumerate(grads)], axis=0)
        else:
            g = g + np.mean([compress(i, k + 1, grad(new) - grad(x)) for i, grad in enumerate(grads)], axis=0)
        x = new
        iterates.append(x)
    return iterates
