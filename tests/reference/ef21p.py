"""EF21-P + DIANA (Gruntkowska, Tyurin, Richtarik, ICML 2023, Algorithm 1)::

    worker i     m_i = Q_i(grad f_i(w) - h_i);   h_i += beta m_i
    server       g = h + mean m_i;   h += beta mean m_i
                 x+ = x - gamma g;   P = C(x+ - w)
    all          w+ = w + P

from w = x.  ``shrink(k, v)`` is what all make of the server's message number k about v.

h_i^0 is 0 where ``begin`` is None.  Otherwise each worker sends its first gradient in place of message 0, and
h_i^0 is what ``begin`` makes of it.  Nothing else is sent in that round, so g = h^0.
"""

import numpy as np


def ef21p(grads, x0, gamma, beta, compress, shrink, rounds, begin=None):
    """Two lists: w^0, .., w^rounds and x^0, .., x^rounds."""
    x = w = np.array(x0)
    h_i = [np.zeros_like(x) if begin is None else begin(i, 0, grad(x)) for i, grad in enumerate(grads)]
    h = np.mean(h_i, axis=0)
    shifted, iterates = [w], [x]
    for k in range(rounds):
        m = [np.zeros_like(x) for _ in grads]
        if k > 0 or begin is None:
            m = [compress(i, k, grad(w) - h_i[i]) for i, grad in enumerate(grads)]
        h_i = [shift + beta * m_i for shift, m_i in zip(h_i, m, strict=True)]
        g = h + np.mean(m, axis=0)
        h = h + beta * np.mean(m, axis=0)
        x = x - gamma * g
        w = w + shrink(k, x - w)
        shifted.append(w)
        iterates.append(x)
    return shifted, iterates
