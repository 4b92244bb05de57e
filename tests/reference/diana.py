"""DIANA (Mishchenko, Gorbunov, Takac, Richtarik, arXiv 1901.09269, Algorithm 1), without a prox::

    server -> all   x
    worker i        m_i = C_i(grad f_i(x) - h_i);   h_i += alpha m_i
    server          m = mean m_i;   g = h + m;   x -= gamma g;   h += alpha m

g is made of the old h.  h_i^0 is 0 where ``begin`` is None.  Otherwise each worker sends its first gradient
in place of message 0, and h_i^0 is what ``begin`` makes of it.  Nothing else is sent in that round: g = h^0.
"""

import numpy as np


def diana(grads, x0, gamma, alpha, compress, rounds, begin=None):
    """The iterates x^0, .., x^rounds."""
    x = np.array(x0)
    h_i = [np.zeros_like(x) if begin is None else begin(i, 0, grad(x)) for i, grad in enumerate(grads)]
    h = np.mean(h_i, axis=0)
    iterates = [x]
    for k in range(rounds):
        messages = []
        for i, grad in enumerate(grads):
            m_i = compress(i, k, grad(x) - h_i[i]) if k > 0 or begin is None else np.zeros_like(x)
            h_i[i] = h_i[i] + alpha * m_i
            messages.append(m_i)
        m = np.mean(messages, axis=0)
        g = h + m
        x = x - gamma * g
        h = h + alpha * m
        iterates.append(x)
    return iterates
