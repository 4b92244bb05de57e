"""EF21 (Richtarik, Sokolov, Fatkhullin, NeurIPS 2021, Algorithm 2)::

    g_i^0 = C(grad f_i(x^0)) or grad f_i(x^0),   g^0 = mean g_i^0
    server     x^{k+1} = x^k - gamma g^k, to all
    worker i   c_i = C(grad f_i(x^{k+1}) - g_i^k);   g_i^{k+1} = g_i^k + c_i
    server     g^{k+1} = g^k + mean c_i

Messages are numbered by the g that they make;
``begin`` is the first message as it arrives.
"""

import numpy as np


def ef21(grads, x0, gamma, compress, rounds, begin):
    """The iterates x^0, .., x^rounds."""
    x = np.array(x0)
    g_i = [begin(i, 0, grad(x)) for i, grad in enumerate(grads)]
    g = np.mean(g_i, axis=0)
    iterates = [x]
    for k in range(rounds):
        x = x - gamma * g
        iterates.append(x)
        c = [compress(i, k + 1, grad(x) - g_i[i]) for i, grad in enumerate(grads)]
        g_i = [old + change for old, change in zip(g_i, c, strict=True)]
        g = g + np.mean(c, axis=0)
    return iterates
