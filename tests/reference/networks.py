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
