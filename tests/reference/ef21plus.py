"""EF21+ (Richtarik, Sokolov, Fatkhullin, NeurIPS 2021, Algorithm 3)::

    g_i^0 = C(grad f_i(x^0)) or grad f_i(x^0),   g^0 = mean g_i^0
    server     x^{k+1} = x^k - gamma g^k, to all
    worker i   b_i = C(grad f_i(x^{k+1})),   m_i = g_i^k + C(grad f_i(x^{k+1}) - g_i^k)
               g_i^{k+1} = m_i if |m_i - grad f_i(x^{k+1})| <= |b_i - grad f_i(x^{k+1})|, else b_i
    server     g^{k+1} = mean g_i^{k+1}, all of which it keeps

``fresh(i, k, v)`` is ``compress`` with the draws of b_i.  Messages are numbered by the g that they make;
where C is random, g_i^0 is the better of two draws as well.  ``begin``, if any, is what arrives of
grad f_i(x^0) where that is sent.
"""

import numpy as np


def ef21plus(grads, x0, gamma, compress, fresh, rounds, begin=None):
    """The iterates x^0, .., x^rounds, and how often each worker took b_i."""
    x = np.array(x0)
    g_i = [np.zeros_like(x) for _ in grads]
    taken = [0 for _ in grads]
    iterates = [x]
    for k in range(rounds):
        for i, grad in enumerate(grads):
            target = grad(x)
            if k == 0 and begin is not None:
                g_i[i] = begin(i, k, target)
                continue
            b_i = fresh(i, k, target)
            m_i = g_i[i] + compress(i, k, target - g_i[i])
            if np.linalg.norm(m_i - target) <= np.linalg.norm(b_i - target):
                g_i[i] = m_i
            else:
                g_i[i] = b_i
                taken[i] += 1
        x = x - gamma * np.mean(g_i, axis=0)
        iterates.append(x)
    return iterates, taken
