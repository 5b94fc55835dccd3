"""Stages of PyTorch models: forward and backward are the stage `gpu`, the average of gradients over all ranks is the stage `net`.

PyTorch is imported when a model is wrapped, so that the package itself has no dependencies.
"""

import weakref

from . import stages

#: Most bytes of gradients that are averaged in one operation. A larger gradient is averaged by itself.
BUCKET_BYTES = 25 << 20

#: Tensors of the last average, until the next forward pass. If PyTorch's own thread were the last to use one, it would have to enter
#: the interpreter to free it, and that aborts a process which is about to exit.
_kept = []


def wrap(model, optimizer, loader):
    """Returns the three, with the stages of the model measured.

    A `DistributedDataParallel` model averages its gradients in one go at the end of the backward pass, as the stage `net`, instead
    of during it; `no_sync` works as before. So does a plain model in a process group of several ranks, which then start from the
    parameters of rank 0. After `backward`, gradients are those of plain `DistributedDataParallel`.
    """
    try:
        import torch
    except ImportError:
        raise ImportError("dovetail.wrap requires PyTorch, which is not installed (pip install torch)") from None
    if not isinstance(model, torch.nn.Module):
        raise TypeError("invalid model: expected a torch.nn.Module, found %s" % type(model).__name__)
    if not callable(getattr(optimizer, "step", None)):
        raise TypeError("invalid optimizer: expected a torch.optim.Optimizer, found %s" % type(optimizer).__name__)
    _refuse_shards(model)
    parts = _distributed_parts(torch, model)
    if parts:
        for part in parts:
            _average_ddp(torch, part)
    elif _world_size(torch) > 1:
        _average_plain(torch, model)
    model.register_forward_pre_hook(_begin_forward)
    is_on_gpu = any(parameter.is_cuda for parameter in model.parameters())
    stages.declare_wrapped(_synchronize_gpu if is_on_gpu else _nothing)
    return model, optimizer, loader


def _nothing():
    pass


def _synchronize_gpu():
    """Waits until the GPU is idle: it computes in the background, and the stage ends when it has finished."""
    import torch

    if not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()


def _begin_forward(_module, _inputs):
    _kept.clear()
    clock = stages.active()
    if clock is not None and clock.is_counting():
        clock.begin_forward()


def _refuse_shards(model):
    """Sharded models communicate within forward and backward, which cannot be separated from computing."""
    names = {cls.__name__ for module in model.modules() for cls in type(module).__mro__}
    types = {type(parameter).__name__ for parameter in model.parameters()}
    if "FullyShardedDataParallel" in names or "DTensor" in types:
        raise TypeError("sharded models cannot be wrapped: mark their stages with `with dovetail.stage(...)`")


def _world_size(torch, group=None):
    """Returns the number of ranks that average gradients."""
    dist = torch.distributed
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def _distributed_parts(torch, model):
    """Returns the `DistributedDataParallel` modules: usually the model itself, or none."""
    if not torch.distributed.is_available():
        return []
    return [part for part in model.modules() if isinstance(part, torch.nn.parallel.DistributedDataParallel)]


def _average_ddp(torch, part):
    """Makes a `DistributedDataParallel` module average its gradients at the end of the backward pass."""
    world = _world_size(torch, part.process_group)
    if world == 1:
        return

    # The module owns the hook. It must be freed with the last reference of the script, because it keeps the process group open.
    reference = weakref.ref(part)

    def average():
        part = reference()
        parameters = _trained(part.module, getattr(part, "parameters_to_ignore", ()))
        with _NetStage():
            _average(torch, parameters, world, part.process_group)

    def leave_bucket(_state, bucket):
        """Leaves a bucket as it is. After the last one, the average is due."""
        if bucket.is_last():
            # The module copies its buckets to the gradients in a callback of its own, which is queued after this one.
            _at_end_of_backward(torch, lambda: _at_end_of_backward(torch, average))
        tensor = bucket.buffer()
        future = torch.futures.Future(devices=[tensor.device]) if tensor.is_cuda else torch.futures.Future()
        future.set_result(tensor)
        return future

    try:
        part.register_comm_hook(None, leave_bucket)
    except RuntimeError as error:
        raise ValueError("the model cannot be wrapped: it has a communication hook of its own (%s)" % error) from None


def _average_plain(torch, model):
    """Makes a plain model average its gradients at the end of each backward pass."""
    dist, world = torch.distributed, _world_size(torch)
    parameters = _trained(model)
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, 0)
    due = []

    def average():
        due.clear()
        with _NetStage():
            _fill_unused(torch, parameters)
            _average(torch, parameters, world, None)

    def request(_gradient):
        if not due:
            due.append(True)
            _at_end_of_backward(torch, average)

    for parameter in parameters:
        parameter.register_hook(request)
    # A backward pass that failed has not run its callback.
    model.register_forward_pre_hook(_Clear(due))


class _Clear:
    """A hook that clears a list before each forward pass. It can be copied along with the model."""

    def __init__(self, entries):
        self._entries = entries

    def __call__(self, _module, _inputs):
        self._entries.clear()


def _at_end_of_backward(torch, function):
    torch.autograd.Variable._execution_engine.queue_callback(function)


def _trained(model, ignored=()):
    return [parameter for name, parameter in model.named_parameters() if parameter.requires_grad and name not in ignored]


def _fill_unused(torch, parameters):
    """Gives every parameter that has a gradient on some rank one on this rank, too: zero, if this rank did not use it."""
    flags = [float(parameter.grad is not None) for parameter in parameters]
    used = torch.tensor(flags, device=parameters[0].device)
    _kept.append(used)
    torch.distributed.all_reduce(used)
    for parameter, ranks in zip(parameters, used.tolist()):
        if parameter.grad is None and ranks > 0:
            parameter.grad = torch.zeros_like(parameter)


class _NetStage:
    """The stage `net`, also on a thread of the autograd engine while the loop waits in `backward`."""

    def __enter__(self):
        clock = stages.active()
        self._clock = clock if clock is not None and clock.is_in_step() else None
        if self._clock is not None:
            self._clock.begin_block("net")

    def __exit__(self, *_):
        if self._clock is not None:
            self._clock.end_block()


def _average(torch, parameters, world, group):
    """Averages gradients over all ranks. It scales before it adds, as `DistributedDataParallel` does."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if any(gradient.is_sparse for gradient in gradients):
        raise TypeError("sparse gradients cannot be averaged by a wrapped model: use `sparse=False`")
    buckets = list(_buckets(gradients))
    largest = max((sum(gradient.numel() for gradient in bucket) for bucket in buckets if not _is_alone(bucket)), default=0)
    spaces = {}
    with torch.no_grad():
        for bucket in buckets:
            flat = bucket[0].view(-1) if _is_alone(bucket) else _flatten(torch, bucket, spaces, largest)
            _kept.append(flat)
            flat.mul_(1.0 / world)
            torch.distributed.all_reduce(flat, group=group)
            if not _is_alone(bucket):
                parts = flat.split([gradient.numel() for gradient in bucket])
                for gradient, part in zip(bucket, parts):
                    gradient.copy_(part.view_as(gradient))


def _is_alone(bucket):
    """Returns whether the bucket is one gradient that can be averaged in place."""
    return len(bucket) == 1 and bucket[0].is_contiguous()


def _flatten(torch, bucket, spaces, largest):
    """Returns the gradients of a bucket in one tensor. All buckets of one type and device use the same space, one after another."""
    dtype, device = bucket[0].dtype, bucket[0].device
    if (dtype, device) not in spaces:
        spaces[dtype, device] = torch.empty(largest, dtype=dtype, device=device)
    size = sum(gradient.numel() for gradient in bucket)
    return torch.cat([gradient.reshape(-1) for gradient in bucket], out=spaces[dtype, device][:size])


def _buckets(gradients):
    """Yields gradients of one type and device, together at most `BUCKET_BYTES` unless there is only one."""
    by_kind = {}
    for gradient in gradients:
        by_kind.setdefault((gradient.dtype, gradient.device), []).append(gradient)
    for kind in by_kind.values():
        bucket, size = [], 0
        for gradient in kind:
            amount = gradient.numel() * gradient.element_size()
            if bucket and size + amount > BUCKET_BYTES:
                yield bucket
                bucket, size = [], 0
            bucket.append(gradient)
            size += amount
        yield bucket
