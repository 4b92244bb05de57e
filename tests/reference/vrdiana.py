"""VR-DIANA with L-SVRG (Horvath, Kovalev, Mishchenko, Stich, Richtarik, arXiv 1904.05115), without a prox::

    worker i   s_i = b_i(x) - b_i(w) + grad f_i(w);   m_i = C_i(s_i - h_i);   h_i += alpha m_i
    server     g = h + mean m_i;   h += alpha mean m_i
    u = 1      w = x
    all        x -= gamma g

b_i is the mean gradient over the samples J_i, the same at both points.  u ~ Bern(p) is common to all
workers; g is made of the old h and w, and w becomes the x before the step.  All shifts start at 0, w at x.
"""

import numpy as np


def vrdiana(grads, batch, x0, gamma, alpha, compress, coin, rounds):
    """x^0, .., x^rounds and w^0, .., w^rounds.  ``batch(i, k, x)`` is b_i, ``coin(k)`` u in round k."""
    x = w = np.array(x0)
    h_i = [np.zeros_like(x) for _ in grads]
    h = np.zeros_like(x)
    iterates, references = [x], [w]
    for k in range(rounds):
        messages = []
        for i, grad in enumerate(grads):
            s_i = batch(i, k, x) - batch(i, k, w) + grad(w)
            m_i = compress(i, k, s_i - h_i[i])
            h_i[i] = h_i[i] + alpha * m_i
            messages.append(m_i)
        m = np.mean(messages, axis=0)
        g = h + m
        h = h + alpha * m
        if coin(k):
            w = x
        x = x - gamma * g
        iterates.append(x)
        references.append(w)
    return iterates, references
