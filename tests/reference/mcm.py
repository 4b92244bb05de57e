"""MCM (Philippenko, Dieuleveut, NeurIPS 2021)::

    worker i     m_i = C_up(g_i(w) - h_i);   h_i += alpha m_i
    server       g = h + mean m_i;   h += alpha mean m_i;   x+ = x - gamma g;   Omega = C_dwn(x+ - H)
    all          w+ = H + Omega;   H += alpha_down Omega

from w = H = x^0; w+ is made of the old H.  ``grad(i, k, w)``: worker i's gradient in round k.

h_i^0 is 0 where ``begin`` is None.  Otherwise each worker sends its first gradient in place of message 0, and
h_i^0 is what ``begin`` makes of it.  Nothing else is sent in that round, so g = h^0.
"""

import numpy as np


def mcm(grad, n, x0, gamma, alpha, alpha_down, compress, shrink, rounds, begin=None):
    """Two lists: w^0, .., w^rounds and x^0, .., x^rounds."""
    x = w = H = np.array(x0)
    h_i = np.zeros((n, x.size))
    if begin is not None:
        h_i = np.array([begin(i, 0, grad(i, 0, x)) for i in range(n)])
    h = h_i.mean(axis=0)
    models, iterates = [w], [x]
    for k in range(rounds):
        m = np.zeros_like(h_i)
        if k > 0 or begin is None:
            m = np.array([compress(i, k, grad(i, k, w) - h_i[i]) for i in range(n)])
        h_i = h_i + alpha * m
        g = h + m.mean(axis=0)
        h = h + alpha * m.mean(axis=0)
        x = x - gamma * g
        omega = shrink(k, x - H)
        w = H + omega
        H = H + alpha_down * omega
        models.append(w)
        iterates.append(x)
    return models, iterates
