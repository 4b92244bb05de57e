"""DASHA (Tyurin, Richtarik, ICLR 2023, Algorithm 1), with full gradients::

    x+ = x - gamma g
    worker i     h_i+ = grad f_i(x+);   m_i = C_i(h_i+ - h_i - a (g_i - h_i));   g_i += m_i
    server       g += mean m_i

from g_i = h_i = 0, so that the first step goes nowhere and x^1 = x^0.
"""

import numpy as np


def dasha(grads, x0, gamma, a, compress, rounds):
    """The iterates x^0, .., x^rounds; x^{k+1} is made before message k, which makes x^{k+2}."""
    x = np.array(x0)
    g_i = [np.zeros_like(x) for _ in grads]
    h_i = [np.zeros_like(x) for _ in grads]
    g = np.zeros_like(x)
    iterates = [x]
    for k in range(rounds):
        x = x - gamma * g
        iterates.append(x)
        messages = []
        for i, grad in enumerate(grads):
            new = grad(x)
            messages.append(compress(i, k, new - h_i[i] - a * (g_i[i] - h_i[i])))
            g_i[i] = g_i[i] + messages[i]
            h_i[i] = new
        g = g + np.mean(messages, axis=0)
    return iterates
