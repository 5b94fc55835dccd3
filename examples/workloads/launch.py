"""The place of this process among those of the job: alone, or started by Dovetail, torchrun, mpirun or horovodrun."""

import os
import zlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import dovetail


class LaunchError(Exception):
    """The processes of the job cannot be connected."""


class Alone:
    """One process."""

    rank, world, local_rank = 0, 1, 0

    def parallel(self, model, optimizer):
        """Returns the model and the optimizer as all ranks together train them."""
        return model, optimizer

    def update(self, optimizer):
        """Makes a step with the gradients of all ranks."""
        optimizer.step()

    def close(self):
        """Ends the connection to the other ranks."""


class ProcessGroup(Alone):
    """Ranks of `torch.distributed`."""

    def __init__(self, backend, rank, world, local_rank):
        self.rank, self.world, self.local_rank = rank, world, local_rank
        _choose_master()
        dist.init_process_group(backend, rank=rank, world_size=world)

    def parallel(self, model, optimizer):
        # Ranks keep the running statistics of their own batches, so that only gradients are communicated.
        return DistributedDataParallel(model, broadcast_buffers=False), optimizer

    def close(self):
        dist.destroy_process_group()


class Horovod(Alone):
    """Ranks of Horovod, which averages gradients in its own optimizer."""

    def __init__(self):
        try:
            import horovod.torch
        except ImportError:
            raise LaunchError("--backend horovod requires Horovod, which is not installed (pip install horovod)") from None
        self._horovod = horovod.torch
        self._horovod.init()
        self.rank, self.world, self.local_rank = (
            self._horovod.rank(),
            self._horovod.size(),
            self._horovod.local_rank(),
        )

    def parallel(self, model, optimizer):
        self._horovod.broadcast_parameters(model.state_dict(), root_rank=0)
        # Parameters that are not trained, such as those of DQN's target network, are not the optimizer's.
        named = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
        return model, self._horovod.DistributedOptimizer(optimizer, named_parameters=named)

    def update(self, optimizer):
        with dovetail.stage("net"):
            optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()

    def close(self):
        self._horovod.shutdown()


def join(backend):
    """Connects the ranks of the job. The backend is `auto`, `gloo`, `nccl` or `horovod`."""
    if backend == "horovod":
        return Horovod()
    world = dovetail.world_size()
    if world == 1:
        return Alone()
    has_gpu = torch.cuda.is_available()
    if backend == "nccl" and not has_gpu:
        raise LaunchError("--backend nccl requires a GPU, and there is none: use gloo")
    if backend == "auto":
        backend = "nccl" if has_gpu else "gloo"
    return ProcessGroup(backend, dovetail.rank(), world, dovetail.local_rank())


def _choose_master():
    """Sets the address of rank 0 if the launcher did not. All ranks of one `mpirun` on one node know its name."""
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        return
    name = os.environ.get("PMIX_NAMESPACE") or os.environ.get("OMPI_MCA_ess_base_jobid")
    is_local = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == os.environ.get("OMPI_COMM_WORLD_SIZE")
    if not name or not is_local:
        raise LaunchError("missing address of rank 0: set MASTER_ADDR and MASTER_PORT (mpirun -x MASTER_ADDR -x MASTER_PORT)")
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(20_000 + zlib.crc32(name.encode()) % 12_000)


def device(place):
    """Returns the GPU of this rank, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    chosen = torch.device("cuda", place.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(chosen)
    return chosen
