"""An MLP on a table: each layer chooses its width, its activation and whether it is there at all:
[EPOCHS]."""

import sys

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from torch import nn

import proxnas


def activation():
    return proxnas.Choice({"relu": nn.ReLU(), "tanh": nn.Tanh(), "silu": nn.SiLU()})


def layer(features):
    """A Choice of widths; inside each width there is a Choice of activations."""
    widths = {
        w: nn.Sequential(nn.Linear(features, w), activation(), nn.Linear(w, features))
        for w in (8, 64)
    }
    return proxnas.Choice(
        {f"width_{w}": mlp for w, mlp in widths.items()} | {"skip": nn.Identity()}
    )


def parts(seed=0):
    """Training, validation and test rows of scikit-learn's breast cancer data."""
    x, y = load_breast_cancer(return_X_y=True)
    x, y = torch.tensor(StandardScaler().fit_transform(x), dtype=torch.float32), torch.tensor(y)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    return [(x[rows], y[rows]) for rows in order.split([230, 170, 169])]


def main(epochs=30):
    torch.manual_seed(0)  # of the first weights
    train, valid, test = parts()
    net = nn.Sequential(layer(30), nn.LayerNorm(30), layer(30), nn.LayerNorm(30), nn.Linear(30, 2))
    found = proxnas.search(
        net, train, valid, proxnas.NASP(eta=1.0), epochs=epochs, learning_rate=0.05
    )
    model = found.model()
    accuracy = (model(test[0]).argmax(1) == test[1]).float().mean()
    print(found, f"parameters {found.result['params']}  test accuracy {accuracy:.3f}", sep="\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
