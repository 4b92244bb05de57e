"""EF21-P + DIANA (Gruntkowska, Tyurin, Richtarik, ICML 2023, Algorithm 1)::

    worker i     m_i = Q_i(grad f_i(w) - h_i);   h_i += beta m_i
    server       g = h + mean m_i;   h += beta mean m_i
                 x+ = x - gamma g;   P = C(x+ - w)
    all          w+ = w + P

from w = x and shifts 0.  ``shrink(k, v)`` is what all make of the server's message number k about v.
"""

import numpy as np


def ef21p(grads, x0, gamma, beta, compress, shrink, rounds):
    """Two lists: w^0, .., w^rounds and x^0, .., x^rounds."""
    x = w = np.array(x0)
    h_i = [np.zeros_like(x) for _ in grads]
    h = np.zeros_like(x)
    shifted, iterates = [w], [x]
    for k in range(rounds):
        m = [compress(i, k, grad(w) - h_i[i]) for i, grad in enumerate(grads)]
        h_i = [shift + beta * m_i for shift, m_i in zip(h_i, m, strict=True)]
        g = h + np.mean(m, axis=0)
        h = h + beta * np.mean(m, axis=0)
        x = x - gamma * g
        w = w + shrink(k, x - w)
        shifted.append(w)
        iterates.append(x)
    return shifted, iterates
