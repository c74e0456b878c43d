"""A small transformer for text, in which each block chooses attention, a convolution or an MLP: [BATCHES [EPOCHS]]."""

import sys
from pydoc_data.topics import topics

import torch
from torch import nn

import proxnas

WIDTH, LENGTH, BATCH = 32, 32, 16
LATER = torch.ones(LENGTH, LENGTH).triu(1).bool()  # what attention must not see
TEXT = torch.tensor(list(" ".join(" ".join(topics.values()).split()).encode("ascii", "replace")))  # Python's own manual


class Attention(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x, attn_mask=LATER, need_weights=False)[0]  # it puts out a pair


class Convolution(nn.Conv1d):
    def forward(self, x):  # over this character and the three before
        return super().forward(nn.functional.pad(x.transpose(1, 2), (3, 0))).transpose(1, 2)


def block():
    mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
    attention, convolution = Attention(WIDTH, 4, batch_first=True), Convolution(WIDTH, WIDTH, 4)
    return proxnas.Choice({"attention": attention, "convolution": convolution, "mlp": mlp})


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place, self.out = nn.Embedding(128, WIDTH), nn.Embedding(LENGTH, WIDTH), nn.Linear(WIDTH, 128)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(WIDTH), block(), nn.GELU()) for _ in range(3))

    def forward(self, text):
        x = self.embed(text) + self.place.weight
        for part in self.blocks:
            x = x + part(x)
        return self.out(x).transpose(1, 2)  # classes in dimension 1


def windows(begin, end, batches, seed):  # (characters, the characters after them)
    draw, part = torch.Generator().manual_seed(seed), TEXT[int(begin * len(TEXT)) : int(end * len(TEXT))]
    starts = torch.randint(len(part) - LENGTH, (batches, BATCH, 1), generator=draw)
    return [(w[:, :-1], w[:, 1:]) for w in part[starts + torch.arange(LENGTH + 1)]]


def search(batches=60, epochs=6, seed=0, progress=False):
    torch.manual_seed(seed)
    train, valid = windows(0, 0.6, batches, seed), windows(0.6, 0.8, batches, seed)
    how = {"optimizer": lambda weights: torch.optim.AdamW(weights, 3e-3), "epochs": epochs, "progress": progress}
    return proxnas.search(Transformer(), train, valid, proxnas.NASP(), seed=seed, **how)


if __name__ == "__main__":
    print(search(*map(int, sys.argv[1:]), progress=True))
