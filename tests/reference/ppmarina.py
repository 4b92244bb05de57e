"""PP-MARINA (Gorbunov, Burlachenko, Li, Richtarik, ICML 2021, Algorithm 4)::

    g^0 = grad f(x^0)
    round k    x^{k+1} = x^k - gamma g^k
    c = 1      every worker sends grad f_i(x^{k+1}), dense;                     g^{k+1} = mean
    c = 0      i in S, |S| = r, sends C_i(grad f_i(x^{k+1}) - grad f_i(x^k));   g^{k+1} = g^k + mean over S

c ~ Bern(p) is common to all workers.  Messages, clients S and coins are numbered by the g that they make.
"""

import numpy as np


def ppmarina(grads, x0, gamma, compress, coin, clients, rounds, dense=lambda i, v: v):
    """x^0, .., x^rounds.  ``coin(k)`` is c for g^k, ``clients(k)`` its S; ``dense(i, v)`` is what arrives."""
    x = np.array(x0)
    g = np.mean([dense(i, grad(x)) for i, grad in enumerate(grads)], axis=0)
    iterates = [x]
    for k in range(1, rounds + 1):
        new = x - gamma * g
        if coin(k):
            g = np.mean([dense(i, grad(new)) for i, grad in enumerate(grads)], axis=0)
        else:
            g = g + np.mean([compress(i, k, grads[i](new) - grads[i](x)) for i in clients(k)], axis=0)
        x = new
        iterates.append(x)
    return iterates
