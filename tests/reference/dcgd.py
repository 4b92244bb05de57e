"""Distributed compressed gradient descent (Alistarh et al., QSGD, 2017; Khirirat et al., 2018)::

server -> all   x
worker i        m_i = C_i(grad f_i(x))
server          g = mean m_i;   x -= gamma g
"""

import numpy as np


def dcgd(grads, x0, gamma, compress, rounds):
    """The iterates x^0, .., x^rounds."""
    x = np.array(x0)
    iterates = [x]
    for k in range(rounds):
        messages = [compress(i, k, grad(x)) for i, grad in enumerate(grads)]
        x = x - gamma * np.mean(messages, axis=0)
        iterates.append(x)
    return iterates
