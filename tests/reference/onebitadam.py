"""1-bit Adam (Tang et al., ICML 2021), as its authors' program runs it::

    k < T    m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2        (g the mean gradient)
    k >= T   worker i   p_i = beta1 m + (1 - beta1) g_i + delta_i;   delta_i = p_i - C(p_i)
             server     p = mean C(p_i) + delta;                     delta = p - C'(p)
             all        m = C'(p)
    always   x+ = x - gamma m / (sqrt(v) + eps);   no step where v = 0

with all of m, v and the errors 0 at first.  ``grad(i, k, x)`` is worker i's gradient in round k.
"""

import numpy as np


def onebitadam(grad, n, x0, gamma, warmup, compress, shrink, rounds, beta1=0.9, beta2=0.999, eps=1e-8):
    """The iterates x^0, .., x^rounds, and the pairs (m, v) after each round."""
    x = np.array(x0)
    m, v, delta = (np.zeros(x.size) for _ in range(3))
    delta_i = np.zeros((n, x.size))
    iterates, moments = [x], []
    for k in range(rounds):
        g = np.array([grad(i, k, x) for i in range(n)])
        if k < warmup:
            mean = g.mean(axis=0)
            m = beta1 * m + (1 - beta1) * mean
            v = beta2 * v + (1 - beta2) * mean**2
        else:
            p_i = beta1 * m + (1 - beta1) * g + delta_i
            sent = np.array([compress(i, k, p) for i, p in enumerate(p_i)])
            delta_i = p_i - sent
            p = sent.mean(axis=0) + delta
            m = shrink(k, p)
            delta = p - m
        x = x - gamma * np.array([a / (b**0.5 + eps) if b > 0 else 0.0 for a, b in zip(m, v, strict=True)])
        iterates.append(x)
        moments.append((m, v))
    return iterates, moments
