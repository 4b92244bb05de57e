"""VR-DIANA with L-SVRG (Horvath, Kovalev, Mishchenko, Stich, Richtarik, arXiv 1904.05115), without a prox::

    worker i   s_i = b_i(x) - b_i(w) + grad f_i(w);   m_i = C_i(s_i - h_i);   h_i += alpha m_i
    server     g = h + mean m_i;   h += alpha mean m_i
    u = 1      w = x
    all        x -= gamma g

b_i is the mean gradient over the samples J_i, the same at both points.  u ~ Bern(p) is common to all
workers; g is made of the old h and w, and w becomes the x before the step.

h_i^0 is 0 where ``begin`` is None.  Otherwise each worker sends its first gradient in place of message 0, and
h_i^0 is what ``begin`` makes of it.  Nothing else is sent in that round, so g = h^0.
"""

import numpy as np


def vrdiana(grads, batch, x0, gamma, alpha, compress, coin, rounds, begin=None):
    """x^0, .., x^rounds and w^0, .., w^rounds.  ``batch(i, k, x)`` is b_i, ``coin(k)`` u in round k."""
    x = w = np.array(x0)
    h_i = [np.zeros_like(x) if begin is None else begin(i, 0, grad(x)) for i, grad in enumerate(grads)]
    h = np.mean(h_i, axis=0)
    iterates, references = [x], [w]
    for k in range(rounds):
        messages = []
        for i, grad in enumerate(grads):
            s_i = batch(i, k, x) - batch(i, k, w) + grad(w)
            m_i = compress(i, k, s_i - h_i[i]) if k > 0 or begin is None else np.zeros_like(x)
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
