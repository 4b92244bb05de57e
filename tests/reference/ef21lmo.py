"""EF21-SGDM with steps of a linear minimisation oracle (arXiv 2410.16871, 2511.14501, 2510.00643)::

    v_i^0 = s_i^0 at x^0,   h_i^0 = v_i^0 or C(v_i^0),   h^0 = mean h_i^0
    server     x^{k+1} = x^k + t_k LMO(h^k), to all
    worker i   v_i^{k+1} = (1 - eta_{k+1}) v_i^k + eta_{k+1} s_i^{k+1},   s_i^{k+1} a gradient at x^{k+1}
               c_i = C(v_i^{k+1} - h_i^k);   h_i^{k+1} = h_i^k + c_i
    server     h^{k+1} = h^k + mean c_i

``sample(i, k, x)`` is s_i^k at x.  Messages are numbered by the h that they make; ``begin`` is the first
message as it arrives.  ``eta(k)`` and ``t(k)`` are eta_k and t_k.  ``average`` makes v_i^{k+1}: it is
``heavy_ball`` as above, ``transported`` by implicit gradient transport, or ``reduced`` by momentum variance
reduction.
"""

import numpy as np


def lmo(norm, g, shapes):
    """The s of norm <= 1 for which <g, s> is least, or Muon's approximation; ``shapes`` are those of the
    tensors in g."""
    if norm == "l2":
        return -g / np.linalg.norm(g)
    if norm == "linf":
        return -np.sign(g)
    factor = newton_schulz if norm == "newton-schulz" else polar
    tensors = np.split(g, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
    return np.concatenate(
        [
            -np.sign(a) if len(shape) < 2 else -factor(a.reshape(shape[0], -1)).ravel()
            for a, shape in zip(tensors, shapes, strict=True)
        ]
    )


def polar(G):
    """U V' of a matrix; U and V have a column for each singular value that is not 0."""
    U, sizes, V = np.linalg.svd(G, full_matrices=False)
    kept = sizes > 1e-12 * sizes[0]
    return U[:, kept] @ V[kept]


def newton_schulz(G):
    """Muon's: X = a X + (b A + c A A) X with A = X X', five times, from G/(|G| + 1e-7), the shorter side
    first."""
    if len(G) > len(G[0]):
        return newton_schulz(G.T).T
    X = G / (np.linalg.norm(G) + 1e-7)
    for _ in range(5):
        A = X @ X.T
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return X


def heavy_ball(v, s, x, old, eta):
    """(1 - eta) v + eta s(x); ``s`` is a worker's gradient on the samples of the round, ``old`` x before."""
    return (1 - eta) * v + eta * s(x)


def transported(v, s, x, old, eta):
    """With the gradient at x + ((1 - eta)/eta) (x - old)."""
    return (1 - eta) * v + eta * s(x + (1 - eta) / eta * (x - old))


def reduced(v, s, x, old, eta):
    """(1 - eta) (v + s(x) - s(old)) + eta s(x)."""
    return (1 - eta) * (v + s(x) - s(old)) + eta * s(x)


def ef21lmo(n, sample, x0, norm, shapes, t, eta, compress, rounds, begin, average):
    """The iterates x^0, .., x^rounds."""
    x = np.array(x0)
    v = [sample(i, 0, x) for i in range(n)]
    h_i = [begin(i, 0, v[i]) for i in range(n)]
    h = np.mean(h_i, axis=0)
    iterates = [x]
    for k in range(1, rounds + 1):
        old, x = x, x + t(k - 1) * lmo(norm, h, shapes)
        iterates.append(x)
        v = [average(v[i], lambda y, i=i, k=k: sample(i, k, y), x, old, eta(k)) for i in range(n)]
        c = [compress(i, k, v[i] - h_i[i]) for i in range(n)]
        h_i = [h_i[i] + c[i] for i in range(n)]
        h = h + np.mean(c, axis=0)
    return iterates
