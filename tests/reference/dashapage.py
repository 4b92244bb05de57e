"""DASHA-PAGE (Tyurin, Richtarik, ICLR 2023, Algorithm 1)::

    x+ = x - gamma g
    worker i     h_i+ = grad f_i(x+) if c = 1, else h_i + s_i(x+) - s_i(x)
                 m_i = C_i(h_i+ - h_i - a (g_i - h_i));   g_i += m_i
    server       g += mean m_i

s_i is the mean gradient over the samples J_i, the same at both points; c ~ Bern(p) is common to all
workers.  From g_i = h_i = 0, so that the first step goes nowhere, and c = 1 in the first round.
"""

import numpy as np


def dashapage(grads, batch, x0, gamma, a, compress, coin, rounds):
    """x^0, .., x^rounds; x^{k+1} is made before message k.  ``batch(i, k, x)`` is s_i, ``coin(k)`` c."""
    x = np.array(x0)
    g_i = [np.zeros_like(x) for _ in grads]
    h_i = [np.zeros_like(x) for _ in grads]
    g = np.zeros_like(x)
    iterates = [x]
    for k in range(rounds):
        old, x = x, x - gamma * g
        iterates.append(x)
        messages = []
        for i, grad in enumerate(grads):
            new = grad(x) if k == 0 or coin(k) else h_i[i] + batch(i, k, x) - batch(i, k, old)
            messages.append(compress(i, k, new - h_i[i] - a * (g_i[i] - h_i[i])))
            g_i[i] = g_i[i] + messages[i]
            h_i[i] = new
        g = g + np.mean(messages, axis=0)
    return iterates
