"""ARC-Top-K with EF21 and momentum (Chen, Ma, Li, He, Dong, Yuan, arXiv 2510.26709), V orthonormal::

    v_i^0 = g_i^0 = s_i^0 at x^0;   g^0 = mean g_i^0
    x^{t+1} = x^t - gamma g^t
    v_i^{t+1} = (1 - eta) v_i^t + eta s_i^{t+1},   s_i^{t+1} a stochastic gradient at x^{t+1}
    M_i = v_i^{t+1} - g_i^t, a matrix;   I = the k rows of largest norm in mean M_i V, with V'V = 1
    c_i = M_i on the rows I, 0 elsewhere;   g_i^{t+1} = g_i^t + c_i;   g^{t+1} = g^t + mean c_i

``tensors`` is a list of (slice of x, rows, k); what is in none of the slices is in c_i whole.
``sample(i, t, x)`` is s_i^t at x, and ``projection(t)`` the list of the V of all tensors in step t.
"""

import numpy as np


def arctopk(n, sample, x0, gamma, eta, tensors, projection, steps):
    """The iterates x^0, .., x^steps, and v_i and g_i, of shape (n, d), after each of the ``steps``."""
    x = np.array(x0)
    v = np.array([sample(i, 0, x) for i in range(n)])
    g = v.copy()
    iterates, memories = [x], []
    for t in range(1, steps + 1):
        memories.append((v, g))
        x = x - gamma * g.mean(axis=0)
        iterates.append(x)
        v = np.array([(1 - eta) * v[i] + eta * sample(i, t, x) for i in range(n)])
        kept = np.ones(x.size, bool)
        for (where, rows, k), V in zip(tensors, projection(t), strict=True):
            M = [(v[i] - g[i])[where].reshape(rows, -1) for i in range(n)]
            P = sum(M_i @ V for M_i in M) / n
            chosen = np.argsort(-np.linalg.norm(P, axis=1), kind="stable")[:k]
            mask = np.zeros(M[0].shape, bool)
            mask[chosen] = True
            kept[where] = mask.ravel()
        g = g + np.where(kept, v - g, 0)
    return iterates, memories
