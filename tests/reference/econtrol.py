"""EControl (Gao, Islamov, Stich, arXiv 2311.05645)::

    worker i   D_i = C(eta e_i + s_i - h_i);   e_i += s_i - h_i - D_i;   h_i += D_i
    server     x -= gamma mean h_i

s_i a stochastic gradient at x, ``sample(i, k, x)``.  At the start h_i = ``begin`` of s_i, as it arrives, and
e_i is the part of s_i that has not arrived.
"""

import numpy as np


def econtrol(n, sample, x0, gamma, eta, compress, rounds, begin):
    """The iterates x^0, .., x^rounds."""
    x = np.array(x0)
    s = [sample(i, 0, x) for i in range(n)]
    h = [begin(i, 0, s[i]) for i in range(n)]
    e = [s[i] - h[i] for i in range(n)]
    iterates = [x]
    for k in range(1, rounds + 1):
        x = x - gamma * np.mean(h, axis=0)
        iterates.append(x)
        for i in range(n):
            s_i = sample(i, k, x)
            sent = compress(i, k, eta * e[i] + s_i - h[i])
            e[i] = e[i] + s_i - h[i] - sent
            h[i] = h[i] + sent
    return iterates
