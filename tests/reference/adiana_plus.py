"""ADIANA+ (Safaryan, Hanzely, Richtarik, NeurIPS 2021)::

    all          x = theta1 z + theta2 w + (1 - theta1 - theta2) y
    worker i     m_i = C_i(L_i^{+1/2} (grad f_i(x) - h_i));   c_i = C'_i(L_i^{+1/2} (grad f_i(w) - h_i))
                 h_i += alpha L_i^{1/2} c_i
    server       g = h + mean L_i^{1/2} m_i;   y+ = x - eta g;   h += alpha mean L_i^{1/2} c_i
                 z+ = beta z + (1 - beta) x + gamma/eta (y+ - x)
                 w+ = y with probability p, else w

theta2 = 1/2, theta1 = min{1/4, sqrt(eta mu / p)}, gamma = eta / (2 (theta1 + eta mu)), beta = 1 - gamma mu.
m_i and c_i are made of the old h_i, g of the old h, and w+ of the old y.  All shifts start at 0.
``compress(i, k, name, v)``: name is "m" or "c".  ``matrices`` are the L_i, positive definite.
"""

import numpy as np


def halves(L):
    """L^{1/2} and its inverse."""
    values, U = np.linalg.eigh(L)
    return U @ np.diag(values**0.5) @ U.T, U @ np.diag(values**-0.5) @ U.T


def adiana_plus(grads, matrices, x0, eta, mu, p, alpha, compress, coin, rounds):
    """y^0, .., y^rounds.  ``coin(k)``: whether w moves."""
    theta1, theta2 = min(0.25, np.sqrt(eta * mu / p)), 0.5
    gamma = eta / (2 * (theta1 + eta * mu))
    beta = 1 - gamma * mu
    roots, inverses = zip(*[halves(L) for L in matrices], strict=True)
    y = z = w = np.array(x0)
    h_i = [np.zeros_like(y) for _ in grads]
    h = np.zeros_like(y)
    iterates = [y]
    for k in range(rounds):
        x = theta1 * z + theta2 * w + (1 - theta1 - theta2) * y
        m, c = [], []
        for i, grad in enumerate(grads):
            m.append(roots[i] @ compress(i, k, "m", inverses[i] @ (grad(x) - h_i[i])))
            c.append(roots[i] @ compress(i, k, "c", inverses[i] @ (grad(w) - h_i[i])))
            h_i[i] = h_i[i] + alpha * c[i]
        g = h + np.mean(m, axis=0)
        h = h + alpha * np.mean(c, axis=0)
        new = x - eta * g
        z = beta * z + (1 - beta) * x + gamma / eta * (new - x)
        if coin(k):
            w = y
        y = new
        iterates.append(y)
    return iterates
