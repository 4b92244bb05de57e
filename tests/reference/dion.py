"""Dion (arXiv 2504.05295) and Orth-Dion (arXiv 2605.16341), for a model of several tensors::

    worker i   M_i = M_i + G_i
    all        P = orth(mean M_i Q);   R = mean M_i' P
    worker i   M_i = M_i - (1 - mu) P R'
    all        Q = R with columns of norm 1  (Dion)   or   Q = orth(R)  (Orth-Dion)
               X = X - gamma sqrt(m/c) P Q',   X of m rows and c columns

A tensor is a matrix X, its first axis by all others; M_i is of its transpose where m < c.  M_i = 0 at the
start, and Q is random.  orth is the Q of a QR decomposition whose R has a positive diagonal.  Tensors
without a Q take X = X - gamma mean G_i.
"""

import numpy as np


def orth(A):
    Q, R = np.linalg.qr(A)
    return Q * np.sign(np.diag(R))


def unit(R):
    return R / (np.linalg.norm(R, axis=0) + 1e-8)


def dion(grads, x0, gamma, shapes, Q, steps, mu=0.95, orthonormal=False):
    """The iterates x^0, .., x^steps and, after each step, the Q of each matrix and the M_i of each worker.

    ``grads`` are functions of (step, x).  ``Q`` maps the number of each tensor that is a matrix to its first
    Q.  M_i maps the same numbers to matrices.
    """
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    x, Q = np.array(x0), dict(Q)
    M = [{l: 0.0 for l in Q} for _ in grads]
    iterates, bases, memories = [x], [dict(Q)], []
    for t in range(steps):
        g = [np.split(np.ravel(grad(t, x)), ends[:-1]) for grad in grads]
        step = []
        for l, shape in enumerate(shapes):
            if l not in Q:
                step.append(np.mean([g_i[l] for g_i in g], axis=0))
                continue
            m, c = shape[0], int(np.prod(shape[1:]))
            turned = m < c
            for M_i, g_i in zip(M, g, strict=True):
                G = g_i[l].reshape(m, c)
                M_i[l] = M_i[l] + (G.T if turned else G)
            P = orth(np.mean([M_i[l] @ Q[l] for M_i in M], axis=0))
            R = np.mean([M_i[l].T @ P for M_i in M], axis=0)
            for M_i in M:
                M_i[l] = M_i[l] - (1 - mu) * P @ R.T
            Q[l] = orth(R) if orthonormal else unit(R)
            D = np.sqrt(m / c) * P @ Q[l].T
            step.append((D.T if turned else D).ravel())
        x = x - gamma * np.concatenate(step)
        iterates.append(x)
        bases.append(dict(Q))
        memories.append([dict(M_i) for M_i in M])
    return iterates, bases, memories
