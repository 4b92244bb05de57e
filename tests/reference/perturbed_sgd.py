"""Perturbed compressed SGD (Avdiukhin, Yaroslavtsev, NeurIPS 2021), with error feedback and resets::

    worker i   u_i = e_i + s_i(x) + xi;   send C(u_i);   e_i = u_i - C(u_i)
    server     x -= eta mean C(u_i)
    if t - t' >= I_reset or |x - x_{t'}| >= R:   x -= eta mean e_i;   e_i = 0;   t' = t

with e_i = 0 and t' = 0 at the start.
"""

import numpy as np


def perturbed_sgd(grads, x0, eta, noise, compress, dense, I_reset, R, exchanges):
    """x after each of the first exchanges, whether step or reset, x^0 first; and which were resets.

    ``grads`` are functions of (exchange, x), ``noise(exchange)`` is xi, ``dense(v)`` what arrives of an
    uncompressed v.
    """
    x = np.array(x0)
    errors = [np.zeros_like(x) for _ in grads]
    iterates, resets = [x], []
    t, t_reset, x_reset = 0, 0, x
    while len(resets) < exchanges:
        k = len(resets)
        sent = []
        for i, grad in enumerate(grads):
            u_i = errors[i] + grad(k, x) + noise(k)
            sent.append(compress(i, k, u_i))
            errors[i] = u_i - sent[i]
        x = x - eta * np.mean(sent, axis=0)
        t += 1
        iterates.append(x)
        resets.append(False)
        if t - t_reset >= I_reset or np.linalg.norm(x - x_reset) >= R:
            sent = [dense(e) for e in errors]
            x = x - eta * np.mean(sent, axis=0)
            errors = [e - s for e, s in zip(errors, sent, strict=True)]
            t_reset, x_reset = t, x
            iterates.append(x)
            resets.append(True)
    return iterates[: exchanges + 1], resets[:exchanges]
