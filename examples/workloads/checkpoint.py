"""Checkpoints: a folder for each step, with the model and a file for each rank.

A file is complete or not there at all. The checkpoint before the last is kept, because ranks do not write at the same moment.
"""

import os
import random
import shutil

import torch

#: Whether files can be read without running code that they contain: PyTorch 1 cannot read a number with a fraction in this way.
READS_NUMBERS = int(torch.__version__.split(".")[0]) >= 2


class CheckpointError(Exception):
    """The checkpoint to resume from is missing, or that of another run."""


class Checkpoints:
    """The checkpoints of one job, seen by one rank."""

    def __init__(self, folder, identity, rank, world):
        self._folder = folder
        self._identity = identity
        self._rank, self._world = rank, world

    def save(self, step, model, optimizer, data):
        """Writes the checkpoint after a step. `data` is the state of the data of this rank."""
        folder = self._path(step)
        os.makedirs(folder, exist_ok=True)
        if self._rank == 0:
            shared = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            _write(os.path.join(folder, "model.pt"), dict(shared, identity=self._identity, world=self._world))
        own = {"data": data, "random": _random_state()}
        _write(os.path.join(folder, "rank-%d.pt" % self._rank), own)
        if self._rank == 0:
            self._prune(step)

    def load(self, step, model, optimizer, source, device):
        """Continues from the checkpoint after a step."""
        shared = self._read(step, "model.pt", device)
        if shared["identity"] != self._identity:
            text = "%s is of another run: expected %r, found %r"
            raise CheckpointError(text % (self._path(step), self._identity, shared["identity"]))
        model.load_state_dict(shared["model"])
        optimizer.load_state_dict(shared["optimizer"])
        if shared["world"] == self._world:
            own = self._read(step, "rank-%d.pt" % self._rank, "cpu")
            source.load(own["data"])
            _set_random_state(own["random"])
        else:
            # Another number of ranks divides the data in another way, from the same step on.
            source.position = step

    def _path(self, step):
        return os.path.join(self._folder, "step-%d" % step)

    def _read(self, step, name, device):
        path = os.path.join(self._path(step), name)
        try:
            return torch.load(path, map_location=device, weights_only=READS_NUMBERS)
        except FileNotFoundError:
            raise CheckpointError("missing checkpoint of step %d: %s" % (step, path)) from None

    def _prune(self, step):
        """Removes all checkpoints but this one and the one before it."""
        steps = sorted(
            int(name[5:]) for name in os.listdir(self._folder) if name.startswith("step-") and name[5:].isdigit()
        )
        for old in [other for other in steps if other <= step][:-2]:
            shutil.rmtree(self._path(old), ignore_errors=True)


def _write(path, state):
    """Writes a file that is either complete or not there, even if the machine loses power."""
    temporary = path + ".new"
    with open(temporary, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _random_state():
    version, numbers, gauss = random.getstate()
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"python": [version, list(numbers), gauss], "torch": torch.get_rng_state(), "gpus": gpus}


def _set_random_state(state):
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    torch.set_rng_state(state["torch"])
    if state["gpus"] and len(state["gpus"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["gpus"])
