"""Error feedback, EF14 (Seide et al., 2014; Stich, Cordonnier, Jaggi, 2018; Karimireddy et al., 2019)::

    worker i   p_i = e_i + gamma s_i;   D_i = C(p_i);   e_i = p_i - D_i
    server     x -= mean D_i

with s_i = grad f_i(x) and e_i = 0 at the start.
"""

import numpy as np


def ef14(grads, x0, gamma, compress, rounds):
    """The iterates x^0, .., x^rounds."""
    x = np.array(x0)
    errors = [np.zeros_like(x) for _ in grads]
    iterates = [x]
    for k in range(rounds):
        sent = []
        for i, grad in enumerate(grads):
            p_i = errors[i] + gamma * grad(x)
            sent.append(compress(i, k, p_i))
            errors[i] = p_i - sent[i]
        x = x - np.mean(sent, axis=0)
        iterates.append(x)
    return iterates
