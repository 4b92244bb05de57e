"""The suites whose comparisons several tests run, as texts."""

from __future__ import annotations

FAIR = """
problem = "quadratics(d=20, noise=0.5, lam=0.05)"
workers = 3
rounds = 400
seeds = [0, 1, 2, 3, 4]
tuning_seeds = 1
target_grad_norm_sq = 1e-6

[[method]]
label = "GD"
method = "gd(gamma=0.2)"

[[method]]
label = "MARINA"
method = "marina(Q=randk(k=5), gamma=0.4)"
"""

SUITE = """
title = "Quadratics | small"
problem = "quadratics(d=20, noise=0.5, lam=0.05)"
workers = 3
rounds = 200
every = 5
seeds = [0, 1, 2]
target_grad_norm_sq = 1e-6

[[method]]
method = "gd"
label = "GD"

[[method]]
method = "diana(Q=randk(k=5))"
label = "DIANA RandK"
tune = [1, 4]

[[method]]
method = "gd(gamma=1000)"
label = "too far"

[[method]]
method = "dcgd(Q=randk(k=2), gamma=1e-4)"
"""
