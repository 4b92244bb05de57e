"""ADEF (Gao, Rodomanov, Rack, Stich, arXiv 2503.08427), in the form of similar triangles::

    all          y = (A x + a v)/(A + a),   a^2 = gamma (A + a)
    worker i     D'_i = C(s_i - g_i);   g_i += D'_i                  s_i a gradient at y
                 d = s_i - g_i - e_i/a;   D_i = C'(d);   e_i = a (D_i - d)
    server       v -= a (g + mean D_i),   g = mean g_i
                 x = (A x + a v)/(A + a);   A += a

All start at 0 but x and v, which start at x0.  For mu > 0, with r = sqrt(gamma mu), y = (x + r v)/(1 + r),
v = (1 - r) v + r y - gamma/r (g + mean D_i) and x = y - gamma (g + mean D_i).  The memory is that of
a = gamma/r, and 1 - r of it is kept from round to round.

``sample(i, k, y)`` is s_i in round k, ``compress(i, k, name, v)`` one of the messages "c" and "m" of round k.
"""

import numpy as np


def adef(n, sample, x0, gamma, mu, compress, rounds):
    """The iterates x^0, .., x^rounds."""
    x = v = np.array(x0)
    g_i, e_i = (np.zeros((n, x.size)) for _ in range(2))
    A, root = 0.0, np.sqrt(gamma * mu)
    iterates = [x]
    for k in range(rounds):
        if mu > 0:
            a, kept = gamma / root, 1 - root
            y = (x + root * v) / (1 + root)
        else:
            a, kept = (gamma + np.sqrt(gamma**2 + 4 * gamma * A)) / 2, 1.0
            y = (A * x + a * v) / (A + a)
        sent = []
        for i in range(n):
            s = sample(i, k, y)
            g_i[i] += compress(i, k, "c", s - g_i[i])
            d = s - g_i[i] - kept * e_i[i] / a
            sent.append(compress(i, k, "m", d))
            e_i[i] = a * (sent[i] - d)
        g = np.mean(g_i, axis=0) + np.mean(sent, axis=0)
        if mu > 0:
            v = (1 - root) * v + root * y - a * g
            x = y - gamma * g
        else:
            v = v - a * g
            x = (A * x + a * v) / (A + a)
            A = A + a
        iterates.append(x)
    return iterates
