"""ADIANA (Li, Kovalev, Qian, Richtarik, ICML 2020, Algorithm 1), without a prox::

    all          x = theta1 z + theta2 w + (1 - theta1 - theta2) y
    worker i     m_i = C_i(grad f_i(x) - h_i);   c_i = C'_i(grad f_i(w) - h_i);   h_i += alpha c_i
    server       g = h + mean m_i;   y+ = x - eta g;   h += alpha mean c_i
                 z+ = beta z + (1 - beta) x + gamma/eta (y+ - x)
                 w+ = y with probability p, else w

m_i and c_i are made of the old h_i, g of the old h, and w+ of the old y.  All shifts start at 0.
``compress(i, k, name, v)``: name is "m" or "c".
"""

import numpy as np


def original(eta, mu, p):
    """theta1, theta2, gamma, beta of the paper's strongly convex case."""
    theta1 = min(0.25, np.sqrt(eta * mu / p))
    gamma = eta / (2 * (theta1 + eta * mu))
    return theta1, 0.5, gamma, 1 - gamma * mu


def refined(eta, mu, L, omega, n):
    """The same of He, Huang, Yuan, arXiv 2305.16297; where omega = 0, the limit."""
    kappa = L / mu
    theta1 = 1 / (3 * np.sqrt(kappa))
    theta2 = 1 / (3 * np.sqrt(n) + 3 * n / omega) if omega > 0 else 0.0
    gamma = eta / (2 * theta1 + eta * mu)
    return theta1, theta2, gamma, 2 * theta1 / (2 * theta1 + eta * mu)


def convex(eta, p, omega, k):
    """The same for convex f in round k: mpicomp/methods/support/adiana_convex.py."""
    theta1 = max(4, 5 / (2 * p)) / (k + max(16, 10 / p, 10 * (1 + omega)))
    return theta1, 0.5, eta / (2 * theta1), 1.0


def adiana(grads, x0, eta, alpha, parameters, compress, coin, rounds):
    """y^0, .., y^rounds.

    ``parameters(k)`` are theta1, theta2, gamma, beta of round k; ``coin(k)``: whether w moves.
    """
    y = z = w = np.array(x0)
    h_i = [np.zeros_like(y) for _ in grads]
    h = np.zeros_like(y)
    iterates = [y]
    for k in range(rounds):
        theta1, theta2, gamma, beta = parameters(k)
        x = theta1 * z + theta2 * w + (1 - theta1 - theta2) * y
        m = [compress(i, k, "m", grad(x) - h_i[i]) for i, grad in enumerate(grads)]
        c = [compress(i, k, "c", grad(w) - h_i[i]) for i, grad in enumerate(grads)]
        h_i = [shift + alpha * c_i for shift, c_i in zip(h_i, c, strict=True)]
        g = h + np.mean(m, axis=0)
        h = h + alpha * np.mean(c, axis=0)
        new = x - eta * g
        z = beta * z + (1 - beta) * x + gamma / eta * (new - x)
        if coin(k):
            w = y
        y = new
        iterates.append(y)
    return iterates
