"""The training loop."""

import os
import sys
import tempfile
import time

from . import environment, session

_hooks = []


def on_checkpoint(function):
    """Registers `function(step)`, which saves the state after `step`. It is called on all ranks.

    Use it as a decorator.
    """
    _hooks.append(function)
    return function


def stopping():
    """Returns why the job is stopping, or `None`."""
    active = session.active()
    return active.reason() if active else None


def checkpointed(step):
    """Reports that the checkpoint after `step` is complete. `iterate` does so after it has called the hooks."""
    folder = os.environ.get("DOVETAIL_REPORT_DIR")
    if folder and os.path.isdir(folder):
        # A file survives a restart of the agent.
        handle, path = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w") as file:
            file.write("%d\n" % step)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path, os.path.join(folder, "checkpoint.%d" % environment.rank()))
    active = session.active()
    if active:
        active.saved(step)


def iterate(loader, total_steps=None, checkpoint=None, checkpoint_every=0):
    """Yields the batches of `loader`, one per step, until the job is done or must stop.

    With `total_steps`, the loader is repeated until that number of steps is done, counting the steps before
    `resume_step()`. The functions given to `on_checkpoint`, and then `checkpoint(step)`, are called every
    `checkpoint_every` steps and when the job must stop. In the latter case the script exits with the code `STOPPED`.
    """
    hooks = list(_hooks) + ([checkpoint] if checkpoint else [])
    step = environment.resume_step()
    current = session.open_session(environment.rank(), environment.world_size(), step, total_steps)
    saved = step

    def save():
        for hook in hooks:
            hook(step)
        if hooks:
            checkpointed(step)

    begun = time.monotonic()
    for batch in _batches(loader, None if total_steps is None else total_steps - step):
        waited = time.monotonic() - begun
        if current and not current.begin(step + 1):
            if saved != step:
                save()
            sys.stdout.flush()
            raise SystemExit(session.STOPPED)
        yield batch
        step += 1
        if current:
            # The time of a step includes the wait for its batch, but not the checkpoints.
            current.done(step, time.monotonic() - begun, waited)
        if checkpoint_every and step % checkpoint_every == 0:
            save()
            saved = step
        begun = time.monotonic()
    if current:
        current.finish(step)


def _batches(loader, count):
    """Yields each batch once, or `count` batches from a repeated loader."""
    if count is None:
        yield from loader
        return
    left = count
    while left > 0:
        before = left
        for batch in loader:
            if left == 0:
                return
            yield batch
            left -= 1
        if left == before:
            raise ValueError("the loader has no batches: %d steps are missing" % left)
