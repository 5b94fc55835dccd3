"""The stages of a step: which part of it loads data, computes, or communicates.

The loop measures the stages, and the agent may let the stages of several jobs take turns (see `gates`).
"""

import os
import threading
import time

#: The stages of a step, in their usual order.
STAGES = ("data", "gpu", "net")


class StageClock:
    """Measures the stages of the steps of one loop, and passes the agent's gates between them.

    A step holds one stage at a time, or none. Blocks may be nested: the inner one counts, then the outer one continues. Outside of
    blocks, the body of the loop is the implicit `gpu` stage, until a `net` block ends it. A script that has a `gpu` block has no
    implicit stage, and that of a wrapped model begins with its forward pass.
    """

    def __init__(self, gates=None):
        self._gates = gates
        self._thread = None
        self._step = None
        #: Stage that is held, and since when.
        self._held = None
        self._since = 0.0
        self._blocks = []
        self._has_implicit_stage = False
        self._has_gpu_blocks = False
        self._times = {}
        self._waited = 0.0

    # ---- called by the loop ----

    def begin_step(self, step):
        """Begins a step, and in it the data stage."""
        self._thread = threading.get_ident()
        self._times = dict.fromkeys(STAGES, 0.0)
        self._waited = 0.0
        self._blocks = ["data"]
        self._has_implicit_stage = False
        if self._gates is not None:
            self._gates.begin_step()
        self._step = step
        self._hold("data")

    def end_data(self):
        """Ends the wait for the batch. No stage is held while the loop decides whether the step is done at all."""
        self._blocks = []
        self._hold(None)

    def begin_body(self):
        """Begins the body of the loop, which is the `gpu` stage until the script says otherwise."""
        if not self._has_gpu_blocks and _synchronize is None:
            self._has_implicit_stage = True
            self._hold("gpu")

    def end_step(self):
        """Ends the step. Returns the seconds of each stage, and `gate`, those spent waiting at gates."""
        if self._step is None:
            return {}
        self._blocks = []
        self._has_implicit_stage = False
        self._hold(None)
        if self._gates is not None and self._gates.is_step_gated:
            self._gates.end_step(self._step)
        self._step = None
        return dict(self._times, gate=self._waited)

    # ---- called by blocks and wrapped models ----

    def is_counting(self):
        """Returns whether this thread is inside a step of the loop."""
        return self._step is not None and self._thread == threading.get_ident()

    def is_in_step(self):
        """Returns whether the loop is inside a step."""
        return self._step is not None

    def begin_block(self, name):
        """Begins a block of the script. The thread may be another one, while that of the loop waits for it."""
        if name == "gpu" and not self._has_gpu_blocks:
            self._has_gpu_blocks = True
            self._forget_implicit_stage()
        elif name == "net":
            self._has_implicit_stage = False
        self._blocks.append(name)
        self._hold(name)

    def end_block(self):
        """Ends the innermost block."""
        if self._blocks:
            self._blocks.pop()
        if self._step is None:
            return
        if self._blocks:
            self._hold(self._blocks[-1])
        else:
            self._hold("gpu" if self._has_implicit_stage else None)

    def begin_forward(self):
        """Begins the implicit stage with the forward pass of a wrapped model, unless a block says what it is."""
        if not (self._blocks or self._has_gpu_blocks or self._has_implicit_stage):
            self._has_implicit_stage = True
            self._hold("gpu")

    # ---- the stage that is held ----

    def _forget_implicit_stage(self):
        """Only blocks count from now on, in this step, too. The gate stays open if the block needs the same one."""
        self._has_implicit_stage = False
        self._times["gpu"] = 0.0
        self._since = time.monotonic()

    def _hold(self, stage):
        """Ends the stage that is held, and begins another one, if any."""
        if stage == self._held:
            return
        gates = self._gates if self._gates is not None and self._gates.is_step_gated else None
        if self._held is not None:
            if _synchronize is not None and self._held != "data":
                _synchronize()
            seconds = time.monotonic() - self._since
            self._times[self._held] += seconds
            if gates is not None:
                gates.leave(self._held, self._step, int(seconds * 1e6))
        self._held = stage
        if stage is not None:
            if gates is not None:
                self._waited += gates.enter(stage, self._step)
            self._since = time.monotonic()


class Block:
    """The context manager that `stage` returns. It counts on the thread of the loop, inside of a step."""

    __slots__ = ("_name", "_clock")

    def __init__(self, name):
        self._name = name
        self._clock = None

    def __enter__(self):
        clock = _clock
        if clock is not None and clock.is_counting():
            self._clock = clock
            clock.begin_block(self._name)
        return self

    def __exit__(self, *_):
        if self._clock is not None:
            self._clock.end_block()
            self._clock = None


_clock = None

#: Waits until the device of the wrapped model is idle; `None` as long as no model is wrapped.
_synchronize = None


def stage(name):
    """Returns a context manager: the block is the stage `data`, `gpu` or `net` of the step.

    Without Dovetail, and outside of `iterate`, it does nothing.
    """
    if name not in STAGES:
        raise ValueError('unknown stage "%s": expected one of %s' % (name, ", ".join(STAGES)))
    return Block(name)


def active():
    """Returns the clock of the loop that runs now, or `None`."""
    return _clock


def activate(clock):
    """Makes blocks count for this clock; `None` for no clock."""
    global _clock
    _clock = clock


def declare_wrapped(synchronize):
    """The implicit stage begins with the forward pass of a model from now on, and ends when `synchronize` returns."""
    global _synchronize
    _synchronize = synchronize


# A child process, such as a worker of a data loader, has no part in the steps of its parent.
os.register_at_fork(after_in_child=lambda: activate(None))
