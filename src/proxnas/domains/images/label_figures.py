"""How right answers to several labels are: of each label by itself, and of all together."""

# N images, T labels

from __future__ import annotations

from typing import Any

import numpy as np

from proxnas.common.seeds import Array


def label_figures(truth: Array, said: Array, answers: Array) -> dict[str, Any]:
    """Average precision and F1 of each label that occurs, their means, and how often all labels of
    an image are right. `truth` and `said` are (N, T) of bool, `answers` the probabilities."""
    each = [_figures_of(truth[:, k], said[:, k], answers[:, k]) for k in range(truth.shape[1])]
    known = [figures for figures in each if figures is not None]
    return {
        "map": float(np.mean([precision for precision, _ in known])) if known else 0.0,
        "f1": float(np.mean([f1 for _, f1 in known])) if known else 0.0,
        "subset_accuracy": float((truth == said).all(1).mean()),
        "each": {
            "average_precision": [figures[0] if figures else None for figures in each],
            "f1": [figures[1] if figures else None for figures in each],
        },
    }


def _figures_of(truth: Array, said: Array, answers: Array) -> tuple[float, float] | None:
    """(average precision, F1) of one label; None: neither is defined without a true image, and the
    label does not count in the means."""
    from sklearn.metrics import average_precision_score

    if not truth.any():
        return None
    both = (truth & said).sum()
    # F1 = 2 TP / (true + answered), the harmonic mean of precision and recall
    f1 = float(2 * both / (truth.sum() + said.sum()))
    return float(average_precision_score(truth, answers)), f1
