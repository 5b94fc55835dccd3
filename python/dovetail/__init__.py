"""Progress, checkpoints and coordinated stops for training scripts that run under Dovetail.

    import dovetail

    @dovetail.on_checkpoint
    def save(step):
        ...

    for batch in dovetail.iterate(loader, total_steps=10_000):
        train(batch)

Without Dovetail, `iterate` is a plain loop.
"""

from .environment import checkpoint_dir, local_rank, rank, resume_step, under_dovetail, world_size
from .loop import checkpointed, iterate, on_checkpoint, stopping
from .session import STOPPED

__all__ = [
    "STOPPED",
    "checkpoint_dir",
    "checkpointed",
    "iterate",
    "local_rank",
    "on_checkpoint",
    "rank",
    "resume_step",
    "stopping",
    "under_dovetail",
    "world_size",
]
