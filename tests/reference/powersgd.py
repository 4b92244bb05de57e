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


def powersgd_layers(grads, x0, gamma, shapes, Q, steps, momentum=0.0):
    """The same for a model of several tensors, one after the other in x, of these ``shapes``.

    ``Q`` maps the number of each tensor that is compressed to its first Q; such a tensor is a matrix, its
    first axis by all others.  The gradients of all other tensors are averaged as they are.
    """
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])

    def tensors(v):
        return [t.reshape(shape) for t, shape in zip(np.split(v, ends[:-1]), shapes, strict=True)]

    def flat(ts):
        return np.concatenate([np.ravel(t) for t in ts])

    x, Q = tensors(np.array(x0)), dict(Q)
    e = [[np.zeros(shape) for shape in shapes] for _ in grads]
    m = [np.zeros(shape) for shape in shapes]
    iterates, errors = [flat(x)], [[flat(e_i) for e_i in e]]
    for _ in range(steps):
        s = [tensors(grad(flat(x))) for grad in grads]
        for l, shape in enumerate(shapes):
            if l in Q:
                M = [(e_i[l] + s_i[l]).reshape(shape[0], -1) for e_i, s_i in zip(e, s, strict=True)]
                P, _ = np.linalg.qr(sum(M_i @ Q[l] for M_i in M) / len(M))
                Q_i = [M_i.T @ P for M_i in M]
                for e_i, M_i, q in zip(e, M, Q_i, strict=True):
                    e_i[l] = (M_i - P @ q.T).reshape(shape)
                Q[l] = sum(Q_i) / len(Q_i)
                D = (P @ Q[l].T).reshape(shape)
            else:
                D = sum(s_i[l] for s_i in s) / len(s)
            m[l] = momentum * m[l] + D
            x[l] = x[l] - gamma * (D + m[l] if momentum > 0 else D)
        iterates.append(flat(x))
        errors.append([flat(e_i) for e_i in e])
    return iterates, errors
