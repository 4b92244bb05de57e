"""DCGD+ (Safaryan, Hanzely, Richtarik, NeurIPS 2021; Wang, Safaryan, Richtarik, NeurIPS 2022)::

    worker i        m_i = C_i(L_i^{+1/2} grad f_i(x))
    server          g = mean L_i^{1/2} m_i;   x -= gamma g

``matrices`` are the smoothness matrices L_i, without negative eigenvalues.
"""

import numpy as np


def halves(L):
    """L^{1/2} and its pseudo-inverse."""
    root = np.zeros_like(L)
    values, vectors = np.linalg.eigh(L)
    for value, vector in zip(values, vectors.T, strict=True):
        if value > 1e-12 * values[-1]:
            root += np.sqrt(value) * np.outer(vector, vector)
    return root, np.linalg.pinv(root, rcond=1e-9)


def dcgd_plus(grads, matrices, x0, gamma, compress, rounds):
    """The iterates x^0, .., x^rounds."""
    roots = [halves(L) for L in matrices]
    x = np.array(x0)
    iterates = [x]
    for k in range(rounds):
        g = np.zeros_like(x)
        for i, (grad, (root, inverse)) in enumerate(zip(grads, roots, strict=True)):
            g = g + root @ compress(i, k, inverse @ grad(x)) / len(grads)
        x = x - gamma * g
        iterates.append(x)
    return iterates
