"""Text as numbers of words: generated, or read from text files such as WikiText."""

import collections
import os

import torch

from . import DataError, Source, generator

#: Numbers that are no words: a rare word, and a masked one.
UNKNOWN, MASK = 0, 1
WORDS = 2

#: Part of the words that BERT must predict.
MASKED = 0.15


class GeneratedText(Source):
    """Sequences in which each word differs from the one before it by the same number."""

    def __init__(self, options, rank, shape):
        super().__init__()
        self._shape = shape
        self._count, self._seed, self._rank = options.batch_size, options.seed, rank

    def batch(self):
        draw = generator(self._seed, self._rank, self.position + 1)
        words = self._shape.vocabulary - WORDS
        first = torch.randint(0, words, (self._count, 1), generator=draw)
        difference = torch.randint(1, 5, (self._count, 1), generator=draw)
        return ((first + difference * torch.arange(self._shape.length + 1)) % words + WORDS,)


class TextFiles(Source):
    """Sequences of words that begin at random positions of the text."""

    def __init__(self, options, rank, shape):
        super().__init__()
        self._shape = shape
        self._count, self._seed, self._rank = options.batch_size, options.seed, rank
        self._words = read_words(list_texts(options.data), shape.vocabulary)
        if len(self._words) <= shape.length:
            text = "--data %s: found %d words, expected more than %d"
            raise DataError(text % (options.data, len(self._words), shape.length))

    def batch(self):
        draw = generator(self._seed, self._rank, self.position + 1)
        begins = torch.randint(0, len(self._words) - self._shape.length, (self._count, 1), generator=draw)
        return (self._words[begins + torch.arange(self._shape.length + 1)].long(),)


class MaskedText(Source):
    """The sequences of another source with some words masked: sequences, masked positions, and the words there."""

    def __init__(self, source, options, rank, shape):
        super().__init__()
        self._source, self._shape = source, shape
        self._seed, self._rank = options.seed + 1, rank

    def batch(self):
        self._source.position = self.position
        words = self._source.batch()[0][:, :-1].contiguous()
        draw = generator(self._seed, self._rank, self.position + 1)
        count, length = words.shape
        positions = torch.rand(count, length, generator=draw).argsort(1)[:, : max(1, int(length * MASKED))]
        targets = words.gather(1, positions)
        # Of the chosen words, 80 % are masked, 10 % are replaced by another word, and 10 % stay.
        kind = torch.rand(positions.shape, generator=draw)
        others = torch.randint(WORDS, self._shape.vocabulary, positions.shape, generator=draw)
        shown = torch.where(kind < 0.8, torch.full_like(targets, MASK), torch.where(kind < 0.9, others, targets))
        return words.scatter(1, positions, shown), positions, targets


def list_texts(path):
    """Returns the text files: the path itself, or the training files of a folder."""
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        raise DataError("--data %s: expected a text file, or a folder of text files" % path)
    found = sorted(name for name in os.listdir(path) if name.endswith((".txt", ".tokens", ".raw")))
    found = [name for name in found if "train" in name] or found
    if not found:
        raise DataError("--data %s: found no file that ends with .txt, .tokens or .raw" % path)
    return [os.path.join(path, name) for name in found]


def read_words(paths, vocabulary):
    """Returns the text as numbers: the most frequent words have one each, all others are unknown."""
    counts, lines = collections.Counter(), 0
    try:
        for path in paths:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    counts.update(line.split())
        ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[: vocabulary - WORDS]
        numbers = {word: number for number, (word, _) in enumerate(ordered, WORDS)}
        words = torch.empty(sum(counts.values()), dtype=torch.int32)
        for path in paths:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    row = [numbers.get(word, UNKNOWN) for word in line.split()]
                    words[lines : lines + len(row)] = torch.tensor(row, dtype=torch.int32)
                    lines += len(row)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError("--data %s: %s" % (path, error)) from None
    return words
