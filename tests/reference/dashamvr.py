"""DASHA-MVR (Tyurin, Richtarik, ICLR 2023, Algorithm 1)::

    x+ = x - gamma g
    worker i     h_i+ = s_i(x+) + (1 - b) (h_i - s_i(x))
                 m_i = C_i(h_i+ - h_i - a (g_i - h_i));   g_i += m_i
    server       g += mean m_i

s_i is a stochastic gradient, of the same samples at both points.  From h_i^0 = s_i(x^0), and g_i^0 = h_i^0 or
a compression of it, of which ``begin`` is what arrives, or 0 where ``begin`` is None.  Messages and their
samples are numbered as they are sent, the start's included; from 0 the first step goes nowhere, and the
first samples are those of h_i^0.
"""

import numpy as np


def dashamvr(n, batch, x0, gamma, a, b, compress, rounds, begin):
    """The iterates x^0, .., x^rounds.  ``batch(i, k, x)`` is s_i, for message k."""
    x = np.array(x0)
    h_i = [batch(i, 0, x) for i in range(n)]
    g_i = [np.zeros_like(x) if begin is None else begin(i, 0, h) for i, h in enumerate(h_i)]
    g = np.mean(g_i, axis=0)
    sent = 0 if begin is None else 1
    iterates = [x]
    for k in range(sent, rounds + sent):
        old, x = x, x - gamma * g
        iterates.append(x)
        messages = []
        for i in range(n):
            new = batch(i, k, x) + (1 - b) * (h_i[i] - batch(i, k, old))
            messages.append(compress(i, k, new - h_i[i] - a * (g_i[i] - h_i[i])))
            g_i[i] = g_i[i] + messages[i]
            h_i[i] = new
        g = g + np.mean(messages, axis=0)
    return iterates
