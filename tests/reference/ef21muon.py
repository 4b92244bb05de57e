"""EF21-Muon (arXiv 2510.00643): steps of a given length, the server's way compressed as by EF21-P::

    w^0 = x^0,   v_i^0 = s_i^0 at w^0,   h_i^0 = v_i^0 or C(v_i^0),   h^0 = mean h_i^0
    server     x^{k+1} = x^k + t_k LMO(h^k);   S = C'(x^{k+1} - w^k)
    all        w^{k+1} = w^k + S
    worker i   v_i^{k+1} = (1 - eta_{k+1}) v_i^k + eta_{k+1} s_i^{k+1},   s_i^{k+1} a gradient at w^{k+1}
               c_i = C(v_i^{k+1} - h_i^k);   h_i^{k+1} = h_i^k + c_i
    server     h^{k+1} = h^k + mean c_i

``lmo(h)`` is the LMO of h, ``sample(i, k, w)`` is s_i^k at w, ``shrink(k, v)`` what all make of the server's
message number k about v.  Messages of the workers are numbered by the h that they make; ``begin`` is the
first one as it arrives.  ``eta(k)`` and ``t(k)`` are eta_k and t_k.  ``average`` makes v_i^{k+1}, as above
or otherwise, of v_i^k, a gradient on the samples of round k+1 as a function, w^{k+1}, w^k and eta_{k+1}.
"""

import numpy as np


def ef21muon(n, sample, x0, lmo, t, eta, compress, shrink, rounds, begin, average):
    """Two lists: w^0, .., w^rounds and x^0, .., x^rounds."""
    x = w = np.array(x0)
    v = [sample(i, 0, w) for i in range(n)]
    h_i = [begin(i, 0, v[i]) for i in range(n)]
    h = np.mean(h_i, axis=0)
    shifted, iterates = [w], [x]
    for k in range(1, rounds + 1):
        x = x + t(k - 1) * lmo(h)
        old, w = w, w + shrink(k - 1, x - w)
        shifted.append(w)
        iterates.append(x)
        v = [average(v[i], lambda y, i=i, k=k: sample(i, k, y), w, old, eta(k)) for i in range(n)]
        c = [compress(i, k, v[i] - h_i[i]) for i in range(n)]
        h_i = [h_i[i] + c[i] for i in range(n)]
        h = h + np.mean(c, axis=0)
    return shifted, iterates
