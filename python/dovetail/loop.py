"""The training loop."""

import os
import sys
import tempfile
import time

from . import place, session

_hooks = []


def on_checkpoint(function):
    """A decorator: `function(step)` saves the state after `step`. It is called on all ranks."""
    _hooks.append(function)
    return function


def stopping():
    """Why the job has been told to stop, or `None`."""
    known = session.known()
    return known.reason() if known else None


def checkpointed(step):
    """Says that the checkpoint after this step is whole. `iterate` does so for the functions it calls."""
    folder = os.environ.get("DOVETAIL_REPORT_DIR")
    if folder and os.path.isdir(folder):
        # A file, so that it is not lost while the agent restarts.
        handle, path = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w") as file:
            file.write("%d\n" % step)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path, os.path.join(folder, "checkpoint.%d" % place.rank()))
    known = session.known()
    if known:
        known.saved(step)


def iterate(loader, total_steps=None, checkpoint=None, checkpoint_every=0):
    """The batches of `loader`, each a step, until the job is done or has to stop.

    With `total_steps` the loader is gone through again and again until so many steps are done in all, those before
    `resume_step()` included. `checkpoint(step)`, and every function given to `on_checkpoint`, is called after each
    `checkpoint_every` steps, and when the job has to stop; then the script ends with the code `STOPPED`.
    """
    hooks = list(_hooks) + ([checkpoint] if checkpoint else [])
    step = place.resume_step()
    talk = session.current(place.rank(), place.world_size(), step, total_steps)
    saved = step

    def save():
        for hook in hooks:
            hook(step)
        if hooks:
            checkpointed(step)

    for batch in _batches(loader, None if total_steps is None else total_steps - step):
        if talk and not talk.begin(step + 1):
            if saved != step:
                save()
            sys.stdout.flush()
            raise SystemExit(session.STOPPED)
        begun = time.monotonic()
        yield batch
        step += 1
        if talk:
            talk.done(step, time.monotonic() - begun)
        if checkpoint_every and step % checkpoint_every == 0:
            save()
            saved = step
    if talk:
        talk.finish(step)


def _batches(loader, count):
    """Each batch once, or as many as are asked for."""
    if count is None:
        yield from loader
        return
    left = count
    while left > 0:
        was = left
        for batch in loader:
            if left == 0:
                return
            yield batch
            left -= 1
        if left == was:
            raise ValueError("the loader has no batches: %d more steps cannot be made" % left)
