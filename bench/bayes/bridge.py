"""Bayesian optimisation over a list of candidates, one line of JSON at a time.

In:  {"features": [[...], ...], "start": [i, ...], "seed": n}   a new search
     {"value": y}                                               what was asked for is worth y
Out: {"next": i}                                                try candidate i; -1: all are tried

The candidates in "start" are tried first. Then a Gaussian process (Matern 5/2,
a length for every feature, and noise) is fitted to all that was tried, and the
candidate with the highest expected improvement is next (Jones et al., 1998).
"""

import json
import sys
import warnings

import numpy as np
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel


def expected_improvement(process, features, best):
    mean, deviation = process.predict(features, return_std=True)
    deviation = np.maximum(deviation, 1e-12)
    score = (mean - best) / deviation
    return (mean - best) * norm.cdf(score) + deviation * norm.pdf(score)


def choose(features, tried, values, seed):
    kernel = ConstantKernel(1.0) * Matern(np.ones(features.shape[1]), (0.05, 50.0), nu=2.5) + WhiteKernel(1e-3, (1e-6, 1e-1))
    process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=seed)
    process.fit(features[tried], values)
    gain = expected_improvement(process, features, max(values))
    gain[tried] = -np.inf
    return int(np.argmax(gain))


def main():
    warnings.simplefilter("ignore", ConvergenceWarning)
    features, start, seed, tried, values = None, [], 0, [], []
    for line in sys.stdin:
        said = json.loads(line)
        if "features" in said:
            features = np.asarray(said["features"], dtype=float)
            spread = features.std(axis=0)
            features = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1)
            start, seed, tried, values = said["start"], said["seed"], [], []
        else:
            values.append(float(said["value"]))
        if len(tried) >= len(features):
            following = -1
        elif len(tried) < len(start):
            following = start[len(tried)]
        else:
            following = choose(features, tried, values, seed)
        tried.append(following)
        print(json.dumps({"next": following}), flush=True)


main()
