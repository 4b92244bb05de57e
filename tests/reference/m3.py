"""M3 (Gruntkowska, Tyurin, Richtarik, arXiv 2402.06412), as recalled, from w_i = z_i = x::

    server     x+ = x - gamma g
    worker i   w_i+ = x+ if the coin of the way down falls, else w_i + P_i(x+ - x)
               z_i+ = beta w_i+ + (1 - beta) z_i
               g_i+ = grad f_i(z_i+) if the coin of the way up falls, else
                      g_i + Q_i(grad f_i(z_i+) - grad f_i(z_i))
    server     g+ = mean g_i+

g_i = grad f_i(x) at the start, sent whole.  Messages up are numbered by the g that they make, those down by
the x that they start from.  ``up(i, k, v)`` is what the server gets of a whole gradient v, and
``change(i, k, v)`` is Q_i(v), ``own(i, k, v)`` P_i(v).  What goes to all is x+ - a, where a went to all the
last time; ``whole(k, v)`` is what all make of v.
"""

import numpy as np


def m3(grads, x0, gamma, beta, up, change, own, whole, coin_up, coin_down, rounds):
    """x^0, .., x^rounds and, for the same rounds, the lists of the z_i."""
    n = len(grads)
    x = a = np.array(x0)
    w, z = [x] * n, [x] * n
    estimates = [up(i, 0, grads[i](x)) for i in range(n)]
    iterates, averages = [x], [z]
    for k in range(rounds):
        after = x - gamma * np.mean(estimates, axis=0)
        if coin_down(k):
            a = a + whole(k, after - a)
            w = [a] * n
        else:
            w = [w[i] + own(i, k, after - x) for i in range(n)]
        x = after
        moved = [beta * w[i] + (1 - beta) * z[i] for i in range(n)]
        if coin_up(k + 1):
            estimates = [up(i, k + 1, grads[i](moved[i])) for i in range(n)]
        else:
            changes = [grads[i](moved[i]) - grads[i](z[i]) for i in range(n)]
            estimates = [estimates[i] + change(i, k + 1, changes[i]) for i in range(n)]
        z = moved
        iterates.append(x)
        averages.append(z)
    return iterates, averages
