"""FSDP2: every process has a part of each parameter, and the loss is that of a process alone, if parts of the batch are equal."""
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("kolo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
for module in (model[0], model[2], model):
    fully_shard(module, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
batch = torch.randn(24, 8).tensor_split(dist.get_world_size())[dist.get_rank()]
for step in range(5):
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.all_reduce(loss := loss.detach(), dist.ReduceOp.AVG)
if dist.get_rank() == 0:
    print(f"result: loss {loss.item():.4f}, {sum(p.to_local().numel() for p in model.parameters())} elements here")
dist.destroy_process_group()
