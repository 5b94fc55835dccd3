"""Data of the workloads: generated, or read from a path.

A source makes the batches of one rank. Everything that its next batch depends on is in its state, so that a resumed run gets the
batches that an uninterrupted run would have got.
"""

import torch


def generator(seed, rank, step):
    """Returns random numbers that depend on nothing else than the arguments."""
    mixed = (seed * 1_000_003 + rank) * 1_000_003 + step
    return torch.Generator().manual_seed(mixed % (1 << 62))


class DataError(Exception):
    """The path has no data of the kind that the model needs."""


class Source:
    """Makes batches, one after another. This one only counts them, for sources whose batches depend on their number."""

    def __init__(self):
        self.position = 0

    def batch(self):
        """Returns the next batch: a tuple of tensors."""
        raise NotImplementedError

    def state(self):
        """Returns what the next batch depends on. Later batches do not change it."""
        return {"position": self.position}

    def load(self, state):
        """Continues from a state."""
        self.position = state["position"]

    def resize(self, cpus):
        """Uses this number of CPU cores."""


class Stream:
    """The endless batches of a source. It remembers the state before the last batch.

    A job that must stop has fetched a batch of which it does not begin the step. Its checkpoint is made before that batch.
    """

    def __init__(self, source):
        self._source = source
        self._before = source.state()

    def __iter__(self):
        while True:
            self._before = self._source.state()
            batch = self._source.batch()
            self._source.position += 1
            yield batch

    def state_after(self, step):
        """Returns the state after the batch of this step, which is the last one or the one before it."""
        for state in (self._source.state(), self._before):
            if state["position"] == step:
                return state
        raise RuntimeError("the data is at step %d, expected step %d" % (self._source.position, step))
