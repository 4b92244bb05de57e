"""2Direction (Tyurin, Richtarik, NeurIPS 2023, Algorithm 1)::

    all          Gamma+, gamma, theta = rates(Gamma);   y = theta w + (1 - theta) z
    worker i     my_i = Q_i(grad f_i(y) - h_i)
    server       g = h + mean my_i;   A = (Lbar + Gamma mu) / gamma
                 u+ = argmin <g, x> + A/2 |x - u|^2 + mu/2 |x - y|^2
    all          q = argmin <k, x> + A/2 |x - w|^2 + mu/2 |x - y|^2
    server       P = C(u+ - q);   x+ = theta u+ + (1 - theta) z
    all          w+ = q + P
    c ~ Bern(p)  1: z+ = x+, k+ = v, both sent dense;   0: z+ = z, k+ = k
    worker i     mz_i = Q'_i(grad f_i(z+) - h_i);   h_i += beta mz_i
    server       v+ = (1 - tau) v + tau (h + mean mz_i);   h += beta mean mz_i

from w = z = u = x^0, h_i = grad f_i(x^0), h = k = v = their mean, Gamma = 1.  my_i, mz_i and g are made of
the old shifts, A of the old Gamma, k+ of the old v.
"""

import numpy as np


def rates(Gamma, Lbar, mu, p, tau, beta, alpha):
    """Gamma+, gamma+, theta+."""
    # p Lbar Gamma theta^2 + p (Lbar + Gamma mu) theta - (Lbar + Gamma mu) = 0
    C = Lbar + Gamma * mu
    theta = np.roots([p * Lbar * Gamma, p * C, -C]).max()
    theta = min(theta, min(1, alpha / p, tau / p, beta / p) / 4)
    gamma = p * theta * Gamma / (1 - p * theta)
    return Gamma + gamma, gamma, theta


def twodirection(grads, x0, Lbar, mu, p, tau, beta, alpha, compress, shrink, dense, coin, rounds):
    """Two lists: z^0, .., z^rounds and w^0, .., w^rounds.

    ``compress(i, k, name, v)``: name is "y" or "z".  ``shrink(k, v)`` is what arrives of P, ``dense(v)`` of
    an uncompressed v, ``coin(k)`` is c.
    """
    w = z = u = np.array(x0)
    h_i = [dense(grad(w)) for grad in grads]
    h = v = np.mean(h_i, axis=0)
    k_stale = dense(v)
    Gamma = 1.0
    zs, ws = [z], [w]
    for k in range(rounds):
        Gamma_new, gamma, theta = rates(Gamma, Lbar, mu, p, tau, beta, alpha)
        y = theta * w + (1 - theta) * z
        my = [compress(i, k, "y", grad(y) - h_i[i]) for i, grad in enumerate(grads)]
        g = h + np.mean(my, axis=0)
        A = (Lbar + Gamma * mu) / gamma
        u = (A * u + mu * y - g) / (A + mu)
        q = (A * w + mu * y - k_stale) / (A + mu)
        w = q + shrink(k, u - q)
        x = theta * u + (1 - theta) * z
        if coin(k):
            z, k_stale = dense(x), dense(v)
        mz = [compress(i, k, "z", grad(z) - h_i[i]) for i, grad in enumerate(grads)]
        v = (1 - tau) * v + tau * (h + np.mean(mz, axis=0))
        h_i = [shift + beta * m_i for shift, m_i in zip(h_i, mz, strict=True)]
        h = h + beta * np.mean(mz, axis=0)
        Gamma = Gamma_new
        zs.append(z)
        ws.append(w)
    return zs, ws
