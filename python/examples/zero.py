"""ZeroRedundancyOptimizer under stock DDP: every process has a part of the optimizer's state."""
import torch, torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

dist.init_process_group("kolo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
batch = torch.randn(24, 8).tensor_split(dist.get_world_size())[dist.get_rank()]
for step in range(5):
    optimizer.zero_grad()
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()
dist.all_reduce(loss := loss.detach(), dist.ReduceOp.AVG)
if dist.get_rank() == 0:
    print(f"result: loss {loss.item():.4f}")
dist.destroy_process_group()
