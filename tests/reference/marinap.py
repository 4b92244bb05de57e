"""MARINA-P (Gruntkowska, Tyurin, Richtarik, arXiv 2402.06412), as recalled::

    server     x+ = x - gamma mean grad f_i(w_i)
    worker i   w_i+ = x+ if the coin of the round falls, else w_i + Q_i(x+ - x)

from w_i = x.  ``up(i, k, v)`` is what the server gets of the gradient v, ``own(i, k, v)`` is Q_i(v) of round
k.  What goes to all is x+ - z, where z went to all the last time; ``whole(k, v)`` is what all make of v.
"""

import numpy as np


def marinap(grads, x0, gamma, up, own, whole, coin, rounds):
    """x^0, .., x^rounds and, for the same rounds, the lists of the w_i."""
    n = len(grads)
    x = z = np.array(x0)
    w = [x] * n
    iterates, models = [x], [w]
    for k in range(rounds):
        after = x - gamma * sum(up(i, k, grads[i](w[i])) for i in range(n)) / n
        if coin(k):
            z = z + whole(k, after - z)
            w = [z] * n
        else:
            w = [w[i] + own(i, k, after - x) for i in range(n)]
        x = after
        iterates.append(x)
        models.append(w)
    return iterates, models
