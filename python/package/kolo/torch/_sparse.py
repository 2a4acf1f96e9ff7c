"""Sums of sparse tensors."""

import torch


def sum_sparse(group, tensor):
    """Sums a sparse tensor in place: gathers the entries of all ranks, padded to the largest number, and joins them."""
    own = tensor.detach().coalesce()
    indices, values = own.indices(), own.values()
    counts = torch.empty(group.size(), dtype=torch.int64)
    group.all_gather_single(counts, torch.tensor([values.shape[0]])).wait()
    largest = int(counts.max())

    def gathered(part, shape):
        padded = torch.zeros((largest, *shape), dtype=part.dtype)
        padded[: part.shape[0]] = part
        whole = torch.empty((group.size() * largest, *shape), dtype=part.dtype)
        group.all_gather_single(whole, padded).wait()
        return torch.cat([piece[:count] for piece, count in zip(whole.split(max(largest, 1)), counts.tolist())])

    indices, values = gathered(indices.t(), (indices.shape[0],)), gathered(values, values.shape[1:])
    total = torch.sparse_coo_tensor(indices.t(), values, tensor.shape).coalesce()
    with torch.no_grad():
        tensor.copy_(total)
