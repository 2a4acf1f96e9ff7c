"""What `import torch` loads by the entry point `torch.backends`. An exception here would break `import torch`,
so it only leaves a function that forms groups, and raises nothing."""


def register():
    """Makes "kolo" a name of `torch.distributed.init_process_group`; does nothing if it is one already."""
    try:
        import torch.distributed as dist

        if dist.is_available() and not hasattr(dist.Backend, "KOLO"):
            dist.Backend.register_backend("kolo", _create, extended_api=True, devices=["cpu", "cuda"])
    except Exception as error:
        import warnings

        warnings.warn(f"kolo cannot register with torch.distributed: {error}")


def _create(place, options):
    import torch

    if torch.__version__ < (2, 11):
        raise RuntimeError(f"kolo: PyTorch {torch.__version__} is too old; this wheel needs 2.11 or newer")
    from kolo.torch._process_group import ProcessGroup

    ranks = place.global_ranks_in_group
    return ProcessGroup(place.store, place.group_rank, place.group_size, place.timeout, ranks, options)
