"""For training scripts that run under Dovetail. Outside of it, everything works as a plain loop.

    import dovetail

    @dovetail.on_checkpoint
    def save(step):
        ...

    for batch in dovetail.iterate(loader, total_steps=10_000):
        train(batch)
"""

from .loop import checkpointed, iterate, on_checkpoint, stopping
from .place import checkpoint_dir, local_rank, rank, resume_step, under_dovetail, world_size
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
