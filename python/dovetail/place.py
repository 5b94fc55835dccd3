"""Where this process is: its rank, its folder for checkpoints, the step to go on from."""

import os


def _number(names, default):
    for name in names:
        try:
            return int(os.environ.get(name, ""))
        except ValueError:
            continue
    return default


def under_dovetail():
    """Whether this process was started by Dovetail."""
    return "DOVETAIL_JOB_ID" in os.environ


def rank():
    """The number of this process in its gang, from 0. A launcher such as torchrun or mpirun knows best."""
    return _number(("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "DOVETAIL_RANK"), 0)


def local_rank():
    """The number of this process on its node, from 0."""
    return _number(("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK", "DOVETAIL_LOCAL_RANK"), 0)


def world_size():
    """How many processes the gang has."""
    return _number(("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "DOVETAIL_WORLD_SIZE"), 1)


def resume_step():
    """Steps that were done when the last checkpoint was made; 0 for a new job."""
    return max(0, _number(("DOVETAIL_RESUME_STEP",), 0))


def checkpoint_dir():
    """The folder for checkpoints of this job. It is made if there is none."""
    path = os.environ.get("DOVETAIL_CHECKPOINT_DIR") or "checkpoints"
    os.makedirs(path, exist_ok=True)
    return path
