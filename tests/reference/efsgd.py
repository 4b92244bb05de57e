"""EF-SGD with a memory in units of the gradient (Sahu et al., NeurIPS 2021)::

    worker i   p_i = e_i + s_i;   D_i = C(p_i);   e_i = p_i - D_i
    server     x -= gamma mean D_i

with s_i a stochastic gradient at x, ``sample(i, k, x)``, and e_i = 0 at the start.

SparseLoCo (arXiv 2508.15706), whose workers take H steps of their own between two messages::

    worker i   theta_i = H inner steps from theta;   D_i = theta - theta_i
               p_i = beta e_i + D_i;   m_i = C(p_i);   e_i = p_i - m_i
    all        theta -= alpha g,   g_j = sum_i m_ij / c_j

with c_j = n, or max(1, #{i: j was sent by i}), and before the sum, if ``clips``, each m_i times
min(1, median_l |m_l| / |m_i|), part by part, where the median of an even number is the smaller of the
middle two, as in torch.
"""

import numpy as np


def efsgd(n, sample, x0, gamma, compress, rounds):
    """The iterates x^0, .., x^rounds."""
    x = np.array(x0)
    errors = [np.zeros_like(x) for _ in range(n)]
    iterates = [x]
    for k in range(rounds):
        sent = []
        for i in range(n):
            p_i = errors[i] + sample(i, k, x)
            sent.append(compress(i, k, p_i))
            errors[i] = p_i - sent[i]
        x = x - gamma * np.mean(sent, axis=0)
        iterates.append(x)
    return iterates


def top(p, k):
    """The k entries of p of largest magnitude, at ties those of lowest index, and where they are."""
    kept = np.sort(np.argsort(-np.abs(p), kind="stable")[:k])
    m = np.zeros_like(p)
    m[kept] = p[kept]
    return m, kept


def clipped(messages, parts):
    """The messages, whose norms in each part, a slice, are at most the median of the norms there."""
    messages = [m.copy() for m in messages]
    for where in parts:
        norms = [np.linalg.norm(m[where]) for m in messages]
        median = sorted(norms)[(len(norms) - 1) // 2]
        for m, norm in zip(messages, norms, strict=True):
            m[where] *= min(1.0, median / norm) if norm else 1.0
    return messages


def sparseloco(n, inner, theta, alpha, beta, k, rounds, senders, clips=None):
    """The iterates theta^0, .., theta^rounds; ``inner(i, t, theta)`` is theta_i; C is ``top``."""
    theta = np.array(theta)
    errors = [np.zeros_like(theta) for _ in range(n)]
    iterates = [theta]
    for t in range(rounds):
        messages, counts = [], np.zeros(theta.size)
        for i in range(n):
            p_i = beta * errors[i] + theta - inner(i, t, theta)
            m_i, kept = top(p_i, k)
            counts[kept] += 1
            messages.append(m_i)
            errors[i] = p_i - m_i
        total = np.sum(messages if clips is None else clipped(messages, clips), axis=0)
        theta = theta - alpha * total / (np.maximum(counts, 1) if senders else n)
        iterates.append(theta)
    return iterates
