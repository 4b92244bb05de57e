"""DIANA+ (Safaryan, Hanzely, Richtarik, NeurIPS 2021; Wang, Safaryan, Richtarik, NeurIPS 2022)::

    worker i        m_i = C_i(L_i^{+1/2} (grad f_i(x) - h_i));   h_i += alpha L_i^{1/2} m_i
    server          m = mean L_i^{1/2} m_i;   g = h + m;   x -= gamma g;   h += alpha m

g is made of the old h.  All shifts start at 0.  ``matrices`` are the L_i, positive definite.
"""

import numpy as np


def halves(L):
    """L^{1/2} and its inverse."""
    values, U = np.linalg.eigh(L)
    return U @ np.diag(values**0.5) @ U.T, U @ np.diag(values**-0.5) @ U.T


def diana_plus(grads, matrices, x0, gamma, alpha, compress, rounds):
    """The iterates x^0, .., x^rounds."""
    halved = [halves(L) for L in matrices]
    x = np.array(x0)
    h_i = [np.zeros_like(x) for _ in grads]
    h = np.zeros_like(x)
    iterates = [x]
    for k in range(rounds):
        messages = []
        for i, grad in enumerate(grads):
            root, inverse = halved[i]
            m_i = root @ compress(i, k, inverse @ (grad(x) - h_i[i]))
            h_i[i] = h_i[i] + alpha * m_i
            messages.append(m_i)
        m = np.mean(messages, axis=0)
        g = h + m
        x = x - gamma * g
        h = h + alpha * m
        iterates.append(x)
    return iterates
