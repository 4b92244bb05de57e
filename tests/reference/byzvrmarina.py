"""Byz-VR-MARINA (Gorbunov, Horvath, Richtarik, Gidel, ICLR 2023, Algorithm 1), and robust rules::

    g_i^0 = grad f_i(x^0),   g^0 = R(g_1^0, .., g_n^0)
    round k    x^{k+1} = x^k - gamma g^k
    c = 1      g_i^{k+1} = grad f_i(x^{k+1})
    c = 0      g_i^{k+1} = base + C_i(s_i(x^{k+1}) - s_i(x^k))
               g^{k+1} = R(g_1^{k+1}, .., g_n^{k+1})

The base is g_i^k, or with ``common`` g^k.  R takes the list of vectors, g^k and the number of the g that is
made.  Messages, batches, coins and buckets are numbered by it.
"""

import numpy as np


def byzvrmarina(n, whole, batch, x0, gamma, compress, coin, rounds, R, common=False):
    """x^0, .., x^rounds.  ``whole(i, k, x)`` is grad f_i as it arrives, ``batch(i, k, x)`` s_i."""
    x = np.array(x0)
    g_i = [whole(i, 0, x) for i in range(n)]
    g = R(g_i, np.zeros_like(x), 0)
    iterates = [x]
    for k in range(1, rounds + 1):
        new = x - gamma * g
        if coin(k):
            g_i = [whole(i, k, new) for i in range(n)]
        else:
            sent = [compress(i, k, batch(i, k, new) - batch(i, k, x)) for i in range(n)]
            g_i = [(g if common else g_i[i]) + sent[i] for i in range(n)]
        g = R(g_i, g, k)
        x = new
        iterates.append(x)
    return iterates


def in_buckets(vectors, order, size):
    """The means of the vectors order[0], .., order[size-1], of the next ones, and so on."""
    return [np.mean([vectors[i] for i in order[j : j + size]], axis=0) for j in range(0, len(order), size)]


def trimmed(vectors, b):
    """Coordinate by coordinate: drop b at both ends, take the mean."""
    kept = [sorted(column)[b : len(vectors) - b] for column in np.transpose(vectors)]
    return np.array([np.mean(column) for column in kept])


def weiszfeld(vectors, nu, steps=8):
    """RFA (Pillutla, Kakade, Harchaoui, 2022): the smoothed Weiszfeld algorithm, from 0."""
    z = np.zeros_like(vectors[0])
    for _ in range(steps):
        weights = [1 / max(nu, np.linalg.norm(z - v)) for v in vectors]
        z = np.average(vectors, axis=0, weights=weights)
    return z


def clipped(vectors, v, radius, steps=3):
    """Centred clipping (Karimireddy, He, Jaggi, 2021); radius None: the median distance."""
    for _ in range(steps):
        distances = np.linalg.norm(np.array(vectors) - v, axis=1)
        tau = np.median(distances) if radius is None else radius
        cuts = [min(1, tau / r) if r > 0 else 1 for r in distances]
        v = v + np.mean([cut * (w - v) for cut, w in zip(cuts, vectors, strict=True)], axis=0)
    return v
