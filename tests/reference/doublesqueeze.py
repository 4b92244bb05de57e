"""DoubleSqueeze (Tang, Yu, Lian, Zhang, Liu, ICML 2019)::

    worker i     v_i = g_i(x) + delta_i;       sends C(v_i);     delta_i = v_i - C(v_i)
    server       v = mean C(v_i) + delta;      sends C'(v);      delta = v - C'(v)
    all          x+ = x - gamma C'(v)

with all errors 0 at first.  ``grad(i, k, x)`` is worker i's gradient in round k.
"""

import numpy as np


def doublesqueeze(grad, n, x0, gamma, compress, shrink, rounds):
    """The iterates x^0, .., x^rounds."""
    x = np.array(x0)
    delta_i = np.zeros((n, x.size))
    delta = np.zeros_like(x)
    iterates = [x]
    for k in range(rounds):
        v_i = [grad(i, k, x) + delta_i[i] for i in range(n)]
        sent = [compress(i, k, v) for i, v in enumerate(v_i)]
        delta_i = np.subtract(v_i, sent)
        v = np.mean(sent, axis=0) + delta
        broadcast = shrink(k, v)
        delta = v - broadcast
        x = x - gamma * broadcast
        iterates.append(x)
    return iterates
