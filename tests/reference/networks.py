"""Losses on images, one sample at a time, with their derivatives by the chain rule."""

import numpy as np


def softmax_loss(W, a, label):
    """-log of the label's probability under logits W (a, 1), and the gradient in W."""
    a = np.append(a, 1.0)
    odds = np.exp(W @ a)
    probabilities = odds / odds.sum()
    gradient = np.array([(q - (c == label)) * a for c, q in enumerate(probabilities)])
    return -np.log(probabilities[label]), gradient


def mlp_loss(W1, b1, W2, b2, a, label, activation):
    """The same for the logits W2 h(W1 a + b1) + b2, and the gradients in W1, b1, W2, b2."""
    z = W1 @ a + b1
    if activation == "tanh":
        h, slope = np.tanh(z), 1 / np.cosh(z) ** 2
    else:
        h, slope = np.where(z > 0, z, 0.0), np.where(z > 0, 1.0, 0.0)
    odds = np.exp(W2 @ h + b2)
    error = odds / odds.sum()
    loss = -np.log(error[label])
    error[label] -= 1
    inner = slope * (W2.T @ error)
    return loss, (np.outer(inner, a), inner, np.outer(error, h), error)


def autoencoder_loss(D, E, a):
    """||D E a - a||^2 and the gradients in D and E."""
    residual = D @ (E @ a) - a
    return residual @ residual, (2 * np.outer(residual, E @ a), 2 * np.outer(D.T @ residual, a))


def pixel_loss(layers, a, experts):
    """-log sum_k softmax(z)_k experts_k for one pixel, and the gradients in the layers [(W, b), ...].

    Between the first layer and the last, which gives z, come blocks of two: h + V relu(W h + b) + c.
    """
    (W, b), *blocks, (last, c) = layers
    h = np.maximum(W @ a + b, 0)
    below = [(h, None)]
    for (V, v), (U, u) in zip(blocks[::2], blocks[1::2], strict=True):
        inner = np.maximum(V @ h + v, 0)
        h = h + U @ inner + u
        below.append((h, inner))
    odds = np.exp(last @ h + c)
    prior = odds / odds.sum()
    likelihood = prior @ experts
    error = prior - prior * experts / likelihood
    gradients = [(np.outer(error, h), error)]
    error = last.T @ error
    for k in reversed(range(len(blocks) // 2)):
        before, inner = below[k][0], below[k + 1][1]
        inside = np.where(inner > 0, blocks[2 * k + 1][0].T @ error, 0.0)
        gradients += [(np.outer(error, inner), error), (np.outer(inside, before), inside)]
        error = error + blocks[2 * k][0].T @ inside
    first = np.where(below[0][0] > 0, error, 0.0)
    gradients.append((np.outer(first, a), first))
    return -np.log(likelihood), gradients[::-1]


def position_inputs(row, column, height, width):
    """What the full image model sees of a pixel's position: a 1 at its row and at its column."""
    return np.concatenate([np.eye(height)[row], np.eye(width)[column]])
