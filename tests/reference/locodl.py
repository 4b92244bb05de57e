"""LoCoDL (Condat, Maranjyan, Richtarik, arXiv 2403.04348), for min mean phi_i + psi::

    worker i   a_i = x_i - gamma grad phi_i(x_i) + gamma u_i
    all        b = y - gamma grad psi(y) + gamma v
    if the coin of probability p falls:
        d_i = Q_i(a_i - b);   dbar = sum d_i/(2n)
        x_i = (1 - rho) a_i + rho (b + dbar);   u_i += p chi/(gamma (1 + 2 omega)) (dbar - d_i)
        y = b + rho dbar;                       v += p chi/(gamma (1 + 2 omega)) dbar
    else x_i = a_i, y = b

``coins`` are those of the iterations, in turn; exchange k is that of its k-th head.
"""

import numpy as np


def locodl(grads, regular, x0, gamma, p, rho, chi, omega, compress, coins):
    """y at the start and after each exchange, and then x_i, u_i and v at the end."""
    n = len(grads)
    x = [np.array(x0) for _ in range(n)]
    u = [np.zeros_like(x0) for _ in range(n)]
    y, v = np.array(x0), np.zeros_like(x0)
    rate = p * chi / (gamma * (1 + 2 * omega))
    iterates = [y]
    for falls in coins:
        x = [x[i] - gamma * grads[i](x[i]) + gamma * u[i] for i in range(n)]
        y = y - gamma * regular(y) + gamma * v
        if falls:
            k = len(iterates) - 1
            d = [compress(i, k, x[i] - y) for i in range(n)]
            middle = sum(d) / (2 * n)
            x = [(1 - rho) * x[i] + rho * (y + middle) for i in range(n)]
            u = [u[i] + rate * (middle - d[i]) for i in range(n)]
            y, v = y + rho * middle, v + rate * middle
            iterates.append(y)
    return iterates, x, u, v
