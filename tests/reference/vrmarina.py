"""VR-MARINA (Gorbunov, Burlachenko, Li, Richtarik, ICML 2021, Algorithms 2 and 3)::

    g^0 = mean G_i(x^0)
    round k    x^{k+1} = x^k - gamma g^k
    c = 1      worker i sends G_i(x^{k+1}), dense;                       g^{k+1} = mean
    c = 0      worker i sends C_i(s_i(x^{k+1}) - s_i(x^k));              g^{k+1} = g^k + mean

s_i is the mean gradient over the samples J_i, the same at both points.  G_i is grad f_i for a finite sum,
and online the mean gradient over a larger batch.  c ~ Bern(p) is common to all workers.  Messages, batches
and coins are numbered by the g that they make.
"""

import numpy as np


def vrmarina(n, whole, batch, x0, gamma, compress, coin, rounds):
    """x^0, .., x^rounds.  ``whole(i, k, x)`` is G_i, ``batch(i, k, x)`` s_i; ``coin(k)`` is c for g^k."""
    x = np.array(x0)
    g = np.mean([whole(i, 0, x) for i in range(n)], axis=0)
    iterates = [x]
    for k in range(1, rounds + 1):
        new = x - gamma * g
        if coin(k):
            g = np.mean([whole(i, k, new) for i in range(n)], axis=0)
        else:
            g = g + np.mean([compress(i, k, batch(i, k, new) - batch(i, k, x)) for i in range(n)], axis=0)
        x = new
        iterates.append(x)
    return iterates


def page(grad, batch, x0, gamma, coin, rounds):
    """PAGE (Li, Bao, Zhang, Richtarik, ICML 2021, Algorithm 1) on one machine, numbered alike::

    g^{k+1} = grad f(x^{k+1}) if c = 1, else g^k + s(x^{k+1}) - s(x^k)
    """
    x = np.array(x0)
    g = grad(x)
    iterates = [x]
    for k in range(1, rounds + 1):
        new = x - gamma * g
        g = grad(new) if coin(k) else g + batch(k, new) - batch(k, x)
        x = new
        iterates.append(x)
    return iterates
