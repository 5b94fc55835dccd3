"""Progress, checkpoints, coordinated stops and stages for training scripts that run under Dovetail.

    import dovetail

    @dovetail.on_checkpoint
    def save(step):
        ...

    for batch in dovetail.iterate(loader, total_steps=10_000):
        train(batch)

Without Dovetail, `iterate` is a plain loop.
"""

from .environment import checkpoint_dir, local_rank, rank, resume_step, under_dovetail, world_size
from .loop import checkpointed, iterate, on_checkpoint, on_resize, stopping
from .metrics import log
from .pytorch import wrap
from .session import STOPPED
from .stages import stage

__all__ = [
    "STOPPED",
    "checkpoint_dir",
    "checkpointed",
    "iterate",
    "local_rank",
    "log",
    "on_checkpoint",
    "on_resize",
    "rank",
    "resume_step",
    "stage",
    "stopping",
    "under_dovetail",
    "world_size",
    "wrap",
]
