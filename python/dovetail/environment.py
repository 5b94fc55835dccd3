"""What the environment says about this process: rank, checkpoint folder and the step to resume from."""

import os


def _number(names, default):
    """Returns the first variable that is a whole number."""
    for name in names:
        try:
            return int(os.environ.get(name, ""))
        except ValueError:
            continue
    return default


def under_dovetail():
    """Returns whether Dovetail started this process."""
    return "DOVETAIL_JOB_ID" in os.environ


def rank():
    """Returns the rank of this process in its gang, from 0. A launcher such as torchrun or mpirun takes precedence."""
    return _number(("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "DOVETAIL_RANK"), 0)


def local_rank():
    """Returns the rank of this process on its node, from 0."""
    return _number(("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK", "DOVETAIL_LOCAL_RANK"), 0)


def world_size():
    """Returns the number of processes in the gang."""
    return _number(("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "DOVETAIL_WORLD_SIZE"), 1)


def resume_step():
    """Returns the number of steps done when the last checkpoint was made; 0 for a new job."""
    return max(0, _number(("DOVETAIL_RESUME_STEP",), 0))


def checkpoint_dir():
    """Returns the checkpoint folder of this job, and creates it if needed."""
    path = os.environ.get("DOVETAIL_CHECKPOINT_DIR") or "checkpoints"
    os.makedirs(path, exist_ok=True)
    return path
