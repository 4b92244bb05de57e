"""DASHA-MVR (Tyurin, Richtarik, ICLR 2023, Algorithm 1)::

    x+ = x - gamma g
    worker i     h_i+ = s_i(x+) + (1 - b) (h_i - s_i(x))
                 m_i = C_i(h_i+ - h_i - a (g_i - h_i));   g_i += m_i
    server       g += mean m_i

s_i is a stochastic gradient, of the same samples at both points.  From g_i = h_i = 0, so that the first
step goes nowhere; the first h_i+ is s_i(x^0).
"""

import numpy as np


def dashamvr(n, batch, x0, gamma, a, b, compress, rounds):
    """The iterates x^0, .., x^rounds; x^{k+1} is made before message k.  ``batch(i, k, x)`` is s_i."""
    x = np.array(x0)
    g_i = [np.zeros_like(x) for _ in range(n)]
    h_i = [np.zeros_like(x) for _ in range(n)]
    g = np.zeros_like(x)
    iterates = [x]
    for k in range(rounds):
        old, x = x, x - gamma * g
        iterates.append(x)
        messages = []
        for i in range(n):
            new = batch(i, k, x)
            if k > 0:
                new = new + (1 - b) * (h_i[i] - batch(i, k, old))
            messages.append(compress(i, k, new - h_i[i] - a * (g_i[i] - h_i[i])))
            g_i[i] = g_i[i] + messages[i]
            h_i[i] = new
        g = g + np.mean(messages, axis=0)
    return iterates
