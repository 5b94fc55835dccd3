"""The training loop."""

import os
import sys
import tempfile
import time

from . import environment, session, stages

_hooks = []
_resize_hooks = []


def on_checkpoint(function):
    """Registers `function(step)`, which saves the state after `step`. It is called on all ranks.

    Use it as a decorator.
    """
    _hooks.append(function)
    return function


def on_resize(function):
    """Registers `function(cpus, memory_mib)`, called between two steps after the job has got more or less CPU or memory.

    `cpus` is a float. Of several changes during one step, only the last is delivered. Use it as a decorator.
    """
    _resize_hooks.append(function)
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

    with _Steps(current) as clock:
        batches = _batches(loader, None if total_steps is None else total_steps - step)
        while total_steps is None or step < total_steps:
            _deliver_size(current)
            begun = time.monotonic()
            clock.begin_step(step + 1)
            batch = next(batches, _END)
            clock.end_data()
            if batch is _END:
                break
            if current and not current.begin(step + 1):
                clock.end_step()
                if saved != step:
                    save()
                sys.stdout.flush()
                raise SystemExit(session.STOPPED)
            clock.begin_body()
            yield batch
            step += 1
            times = clock.end_step()
            if current:
                # The time of a step includes the wait for its batch and at gates, but not the checkpoints.
                current.done(step, time.monotonic() - begun, times)
            if checkpoint_every and step % checkpoint_every == 0:
                save()
                saved = step
    if current:
        current.finish(step)


#: What `next` returns after the last batch.
_END = object()


class _Steps:
    """Lets blocks of the script count for this loop while it runs. A loop inside of another one has no stages of its own."""

    def __init__(self, current):
        self._clock = stages.StageClock(current.gates if current else None)
        self._is_active = current is not None and stages.active() is None

    def __enter__(self):
        if self._is_active:
            stages.activate(self._clock)
        return self._clock

    def __exit__(self, *_):
        self._clock.end_step()
        if self._is_active and stages.active() is self._clock:
            stages.activate(None)


def _deliver_size(current):
    """Calls the functions given to `on_resize` if the agent has resized the job."""
    size = current.take_size() if current else None
    if size is not None:
        for hook in list(_resize_hooks):
            hook(*size)


def _batches(loader, count):
    """Yields each batch once, or `count` batches from a repeated loader."""
    if count is None:
        yield from loader
        return
    left = count
    while left > 0:
        before = left
        for batch in loader:
            yield batch
            left -= 1
            if left == 0:
                return
        if left == before:
            raise ValueError("the loader has no batches: %d steps are missing" % left)
