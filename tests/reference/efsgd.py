"""EF-SGD with a memory in units of the gradient (Sahu et al., NeurIPS 2021)::

    worker i   p_i = e_i + s_i;   D_i = C(p_i);   e_i = p_i - D_i
    server     x -= gamma mean D_i

with s_i a stochastic gradient at x, ``sample(i, k, x)``, and e_i = 0 at the start.
"""

import numpy as np


def efsgd(n, sample, x0, gamma, compress, rounds):
    """The iterates x^0, .., x^rounds."""
    x = np.array(x0)
    errors = [np.zeros_like(x) for _ in range(n)]
    iterates = [x]
    for k in range(rounds):
        sent = []
        for i in range(n):
            p_i = errors[i] + sample(i, k, x)
            sent.append(compress(i, k, p_i))
            errors[i] = p_i - sent[i]
        x = x - gamma * np.mean(sent, axis=0)
        iterates.append(x)
    return iterates
