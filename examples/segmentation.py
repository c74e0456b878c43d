"""A small U-Net that finds discs in noise chooses its kernels, and how its halves are joined:
[IMAGES [EPOCHS]]."""

import sys

import torch
from torch import nn

import proxnas


def images(n, seed):
    """(images, masks): a disc somewhere in each, hardly brighter than the noise."""
    draw = torch.Generator().manual_seed(seed)
    centre, radius = (
        torch.rand(n, 2, 1, 1, generator=draw) * 24,
        3 + 4 * torch.rand(n, 1, 1, generator=draw),
    )
    rows, columns = torch.meshgrid(torch.arange(24), torch.arange(24), indexing="ij")
    mask = ((rows - centre[:, 0]) ** 2 + (columns - centre[:, 1]) ** 2 < radius**2).float()[:, None]
    return mask + 0.8 * torch.randn(mask.shape, generator=draw), mask


def block(c_in, c_out):
    kernels = {f"conv_{k}": nn.Conv2d(c_in, c_out, k, padding=k // 2) for k in (1, 3, 5)}
    return nn.Sequential(proxnas.Choice(kernels), nn.BatchNorm2d(c_out), nn.ReLU())


class Join(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.share = share

    def forward(self, below, across):  # a candidate can have several inputs
        return below + self.share * across


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.bottom, self.up, self.out = (
            block(1, 8),
            block(8, 8),
            block(8, 8),
            nn.Conv2d(8, 1, 1),
        )
        self.join = proxnas.Choice({"below": Join(0), "sum": Join(1)})

    def forward(self, x):
        across = self.down(x)
        below = nn.functional.interpolate(
            self.bottom(nn.functional.max_pool2d(across, 2)), scale_factor=2
        )
        return self.out(self.up(self.join(below, across=across)))


def overlap(output, mask):  # intersection over union
    return ((output > 0) & (mask > 0)).sum() / ((output > 0) | (mask > 0)).sum()


def main(n=256, epochs=10):
    torch.manual_seed(0)
    judge = {"loss": nn.functional.binary_cross_entropy_with_logits, "metric": overlap}
    found = proxnas.search(
        UNet(), images(n, 0), images(n, 1), **judge, epochs=epochs, learning_rate=0.1
    )
    x, mask = images(100, 2)
    print(found, f"overlap on new images {overlap(found.model()(x), mask):.3f}", sep="\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
