"""Language models: BERT and GPT-2, of the same transformer blocks."""

from typing import NamedTuple

import torch
from torch import nn


class Shape(NamedTuple):
    """Dimensions of a language model."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    length: int


SHAPES = {
    ("bert", "full"): Shape(12, 768, 12, 30_522, 512),
    ("bert", "small"): Shape(4, 128, 4, 2_048, 64),
    ("bert", "tiny"): Shape(1, 32, 2, 128, 16),
    ("gpt2", "full"): Shape(12, 768, 12, 50_257, 1_024),
    ("gpt2", "small"): Shape(4, 128, 4, 2_048, 64),
    ("gpt2", "tiny"): Shape(1, 32, 2, 128, 16),
}

DROPOUT = 0.1


class Attention(nn.Module):
    """Self-attention with several heads; in a causal one, no position sees a later one."""

    def __init__(self, shape, is_causal):
        super().__init__()
        self.heads, self.is_causal = shape.heads, is_causal
        self.inputs = nn.Linear(shape.width, 3 * shape.width)
        self.output = nn.Linear(shape.width, shape.width)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        count, length, width = x.shape
        parts = self.inputs(x).view(count, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
        if self.is_causal:
            later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        mixed = self.dropout(scores.softmax(-1)) @ value
        return self.output(mixed.transpose(1, 2).reshape(count, length, width))


class Block(nn.Module):
    """Attention and two linear layers. GPT-2 normalizes the input of each part, BERT the output."""

    def __init__(self, shape, is_causal):
        super().__init__()
        self.normalizes_inputs = is_causal
        self.attention = Attention(shape, is_causal)
        self.linear = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width)
        )
        self.norms = nn.ModuleList([nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)])
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        for norm, part in zip(self.norms, (self.attention, self.linear)):
            if self.normalizes_inputs:
                x = x + self.dropout(part(norm(x)))
            else:
                x = norm(x + self.dropout(part(x)))
        return x


class LanguageModel(nn.Module):
    """Predicts words at the given positions (BERT), or the next word at each position (GPT-2)."""

    def __init__(self, name, size):
        super().__init__()
        shape = SHAPES[name, size]
        is_causal = name == "gpt2"
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.places = nn.Embedding(shape.length, shape.width)
        self.first = nn.Identity() if is_causal else nn.LayerNorm(shape.width)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.Sequential(*[Block(shape, is_causal) for _ in range(shape.layers)])
        if is_causal:
            self.last = nn.LayerNorm(shape.width)
        else:
            self.last = nn.Sequential(nn.Linear(shape.width, shape.width), nn.GELU(), nn.LayerNorm(shape.width))
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary))
        self.apply(_initialize)

    def forward(self, words, positions=None):
        places = torch.arange(words.shape[1], device=words.device)
        x = self.blocks(self.dropout(self.first(self.words(words) + self.places(places))))
        if positions is not None:
            x = x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        # Words have the same vectors at both ends.
        return nn.functional.linear(self.last(x), self.words.weight, self.bias)


def _initialize(module):
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, 0, 0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
