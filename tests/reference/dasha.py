"""DASHA (Tyurin, Richtarik, ICLR 2023, Algorithm 1), with full gradients::

    x+ = x - gamma g
    worker i     h_i+ = grad f_i(x+);   m_i = C_i(h_i+ - h_i - a (g_i - h_i));   g_i += m_i
    server       g += mean m_i

from h_i^0 = grad f_i(x^0), and g_i^0 = grad f_i(x^0) or a compression of it, of which ``begin`` is what
arrives, or 0 where ``begin`` is None.  Messages are numbered as they are sent, the start's included; from 0
the first step goes nowhere.
"""

import numpy as np


def dasha(grads, x0, gamma, a, compress, rounds, begin):
    """The iterates x^0, .., x^rounds."""
    x = np.array(x0)
    h_i = [grad(x) for grad in grads]
    g_i = [np.zeros_like(x) if begin is None else begin(i, 0, h) for i, h in enumerate(h_i)]
    g = np.mean(g_i, axis=0)
    sent = 0 if begin is None else 1
    iterates = [x]
    for k in range(rounds):
        x = x - gamma * g
        iterates.append(x)
        messages = []
        for i, grad in enumerate(grads):
            new = grad(x)
            messages.append(compress(i, k + sent, new - h_i[i] - a * (g_i[i] - h_i[i])))
            g_i[i] = g_i[i] + messages[i]
            h_i[i] = new
        g = g + np.mean(messages, axis=0)
    return iterates
