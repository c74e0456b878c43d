"""A small transformer for text, in which each block chooses attention, a convolution or an MLP:
[BATCHES [EPOCHS]]."""

import sys
from pydoc_data.topics import topics

import torch
from torch import nn

import proxnas

WIDTH = LENGTH = 32
TEXT = torch.tensor(
    list(" ".join(" ".join(topics.values()).split()).encode("ascii", "replace"))
)  # Python's own manual


class Attention(nn.MultiheadAttention):
    def forward(self, x):
        later = torch.ones(LENGTH, LENGTH, device=x.device).triu(1).bool()
        return super().forward(x, x, x, attn_mask=later, need_weights=False)[0]


class Convolution(nn.Conv1d):
    def forward(self, x):  # over this character and the three before
        return super().forward(nn.functional.pad(x.transpose(1, 2), (3, 0))).transpose(1, 2)


def block():
    mixers = {
        "attention": Attention(WIDTH, 4, batch_first=True),
        "convolution": Convolution(WIDTH, WIDTH, 4),
    }
    return proxnas.Choice(
        mixers | {"mlp": nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))}
    )


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = (
            nn.Embedding(128, WIDTH),
            nn.Parameter(torch.randn(LENGTH, WIDTH) / 50),
        )
        self.out = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 128))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), block(), nn.GELU()) for _ in range(3)
        )

    def forward(self, text):
        x = self.embed(text) + self.place
        for part in self.blocks:
            x = x + part(x)
        return self.out(x).transpose(1, 2)  # classes in dimension 1


def windows(begin, end, batches, seed):  # (characters, the characters after them)
    draw, part = (
        torch.Generator().manual_seed(seed),
        TEXT[int(begin * len(TEXT)) : int(end * len(TEXT))],
    )
    places = torch.randint(len(part) - LENGTH, (batches, 16, 1), generator=draw) + torch.arange(
        LENGTH + 1
    )
    return [(text[:, :-1], text[:, 1:]) for text in part[places]]


def search(batches=60, epochs=6, seed=0, progress=False):
    torch.manual_seed(seed)
    data = (windows(*part, batches, seed) for part in ((0, 0.6), (0.6, 0.8)))
    how = {
        "optimizer": lambda weights: torch.optim.AdamW(weights, 3e-3),
        "epochs": epochs,
        "progress": progress,
    }
    return proxnas.search(Transformer(), *data, proxnas.NASP(), seed=seed, **how)


if __name__ == "__main__":
    print(search(*map(int, sys.argv[1:]), progress=True))
