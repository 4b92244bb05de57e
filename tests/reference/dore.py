"""Dore (Liu, Li, Tang, Yan, AISTATS 2020), without a prox::

    worker i     m_i = Q(g_i(xh) - h_i);   h_i += alpha m_i
    server       g = h + mean m_i;   h += alpha mean m_i
                 t = xh - gamma g;   q = t - xh + eta e;   qh = Q'(q);   e = q - qh
    all          xh += beta qh

with e = 0 at first.  ``grad(i, k, x)`` is worker i's gradient in round k.

h_i^0 is 0 where ``begin`` is None.  Otherwise each worker sends its first gradient in place of message 0, and
h_i^0 is what ``begin`` makes of it.  Nothing else is sent in that round, so g = h^0.
"""

import numpy as np


def dore(grad, n, x0, gamma, alpha, beta, eta, compress, shrink, rounds, begin=None):
    """Two lists: xh^0, .., xh^rounds and e^0, .., e^rounds."""
    xh = np.array(x0)
    h_i = np.zeros((n, xh.size))
    if begin is not None:
        h_i = np.array([begin(i, 0, grad(i, 0, xh)) for i in range(n)])
    h, e = h_i.mean(axis=0), np.zeros_like(xh)
    iterates, errors = [xh], [e]
    for k in range(rounds):
        m = np.zeros_like(h_i)
        if k > 0 or begin is None:
            m = np.array([compress(i, k, grad(i, k, xh) - h_i[i]) for i in range(n)])
        h_i = h_i + alpha * m
        g = h + m.mean(axis=0)
        h = h + alpha * m.mean(axis=0)
        t = xh - gamma * g
        q = t - xh + eta * e
        qh = shrink(k, q)
        e = q - qh
        xh = xh + beta * qh
        iterates.append(xh)
        errors.append(e)
    return iterates, errors
