"""PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019), Algorithms 1 and 2::

    worker i   M_i = e_i + s_i(x)
    all        P = orthogonalise(mean M_i Q)
    worker i   Q_i = M_i' P;   e_i = M_i - P Q_i'
    all        Q = mean Q_i;   D = P Q';   m = lambda m + D;   x -= gamma (D + m)

Without momentum, lambda = 0, x -= gamma D.  Vectors are matrices, e_i = m = 0 at the start, and Q is random.
Whichever basis P of its span is chosen, e_i and P Q' are the same.
"""

import numpy as np


def powersgd(grads, x0, gamma, rows, Q, steps, momentum=0.0):
    """The iterates x^0, .., x^steps and the e_i after each; ``grads`` are functions of (step, x)."""
    x = np.array(x0)
    e = [np.zeros((rows, x.size // rows)) for _ in grads]
    m = np.zeros_like(x)
    iterates, errors = [x], [e]
    for t in range(steps):
        M = [e_i + grad(t, x).reshape(e_i.shape) for e_i, grad in zip(e, grads, strict=True)]
        P, _ = np.linalg.qr(np.mean([M_i @ Q for M_i in M], axis=0))
        Q_i = [M_i.T @ P for M_i in M]
        e = [M_i - P @ q.T for M_i, q in zip(M, Q_i, strict=True)]
        Q = np.mean(Q_i, axis=0)
        D = (P @ Q.T).ravel()
        m = momentum * m + D
        x = x - gamma * (D + m if momentum > 0 else D)
        iterates.append(x)
        errors.append(e)
    return iterates, errors
