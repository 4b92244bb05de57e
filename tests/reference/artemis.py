"""Artemis (Philippenko, Dieuleveut, arXiv 2006.14591), partial participation in its second way::

    i in S_k     m_i = C_up(g_i(x) - h_i);   h_i += alpha m_i
    server       g = h + 1/(p n) sum_S m_i;  h += alpha/n sum_S m_i;  Omega = C_dwn(g - H)
    all          x+ = x - gamma (H + Omega);   H += alpha_down Omega

H starts at 0; g is made of the old h, x+ of the old H.  ``grad(i, k, x)`` is worker i's gradient in
round k, ``present(k)`` is S_k, ``shrink(k, v)`` is what arrives of the broadcast of v.

h_i^0 is 0 where ``begin`` is None.  Otherwise each worker sends its first gradient in place of message 0, and
h_i^0 is what ``begin`` makes of it.  Nothing else is sent in that round, so g = h^0.
"""

import numpy as np


def artemis(grad, n, x0, gamma, alpha, alpha_down, p, compress, shrink, present, rounds, begin=None):
    """Two lists: x^0, .., x^rounds and H^0, .., H^rounds."""
    x = np.array(x0)
    h_i = np.zeros((n, x.size))
    if begin is not None:
        h_i = np.array([begin(i, 0, grad(i, 0, x)) for i in range(n)])
    h, H = h_i.mean(axis=0), np.zeros_like(x)
    iterates, memories = [x], [H]
    for k in range(rounds):
        total = np.zeros_like(x)
        for i in present(k) if k > 0 or begin is None else []:
            m_i = compress(i, k, grad(i, k, x) - h_i[i])
            h_i[i] = h_i[i] + alpha * m_i
            total = total + m_i
        g = h + total / (p * n)
        h = h + alpha * total / n
        omega = shrink(k, g - H)
        x = x - gamma * (H + omega)
        H = H + alpha_down * omega
        iterates.append(x)
        memories.append(H)
    return iterates, memories
