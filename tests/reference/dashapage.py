"""DASHA-PAGE (Tyurin, Richtarik, ICLR 2023, Algorithm 1)::

    x+ = x - gamma g
    worker i     h_i+ = grad f_i(x+) if c = 1, else h_i + s_i(x+) - s_i(x)
                 m_i = C_i(h_i+ - h_i - a (g_i - h_i));   g_i += m_i
    server       g += mean m_i

s_i is the mean gradient over the samples J_i, the same at both points; c ~ Bern(p) is common to all
workers.  From h_i^0 = grad f_i(x^0), and g_i^0 = grad f_i(x^0) or a compression of it, of which ``begin`` is
what arrives, or 0 where ``begin`` is None.  Messages, with their coins and samples, are numbered as they are
sent, the start's included; from 0 the first step goes nowhere.
"""

import numpy as np


def dashapage(grads, batch, x0, gamma, a, compress, coin, rounds, begin):
    """x^0, .., x^rounds.  ``batch(i, k, x)`` is s_i, ``coin(k)`` c, for message k."""
    x = np.array(x0)
    h_i = [grad(x) for grad in grads]
    g_i = [np.zeros_like(x) if begin is None else begin(i, 0, h) for i, h in enumerate(h_i)]
    g = np.mean(g_i, axis=0)
    sent = 0 if begin is None else 1
    iterates = [x]
    for k in range(sent, rounds + sent):
        old, x = x, x - gamma * g
        iterates.append(x)
        messages = []
        for i, grad in enumerate(grads):
            new = grad(x) if coin(k) else h_i[i] + batch(i, k, x) - batch(i, k, old)
            messages.append(compress(i, k, new - h_i[i] - a * (g_i[i] - h_i[i])))
            g_i[i] = g_i[i] + messages[i]
            h_i[i] = new
        g = g + np.mean(messages, axis=0)
    return iterates
