"""EF21-SGDM (Fatkhullin, Tyurin, Richtarik, NeurIPS 2023, Algorithm 1)::

    v_i^0 = s_i^0 at x^0,   g_i^0 = v_i^0 or C(v_i^0),   g^0 = mean g_i^0
    server     x^{k+1} = x^k - gamma g^k, to all
    worker i   v_i^{k+1} = (1 - eta) v_i^k + eta s_i^{k+1},   s_i^{k+1} a stochastic gradient at x^{k+1}
               c_i = C(v_i^{k+1} - g_i^k);   g_i^{k+1} = g_i^k + c_i
    server     g^{k+1} = g^k + mean c_i

``sample(i, k, x)`` is s_i^k at x.  Messages are numbered by the g that they make;
``begin`` is the first message as it arrives.
"""

import numpy as np


def ef21sgdm(n, sample, x0, gamma, eta, compress, rounds, begin):
    """The iterates x^0, .., x^rounds."""
    x = np.array(x0)
    v = [sample(i, 0, x) for i in range(n)]
    g_i = [begin(i, 0, v[i]) for i in range(n)]
    g = np.mean(g_i, axis=0)
    iterates = [x]
    for k in range(1, rounds + 1):
        x = x - gamma * g
        iterates.append(x)
        v = [(1 - eta) * v[i] + eta * sample(i, k, x) for i in range(n)]
        c = [compress(i, k, v[i] - g_i[i]) for i in range(n)]
        g_i = [g_i[i] + c[i] for i in range(n)]
        g = g + np.mean(c, axis=0)
    return iterates
