"""kolo.torch.DistributedDataParallel: prints the same loss and hash for any number of processes up to 4."""
import torch, torch.distributed as dist, kolo.torch

dist.init_process_group("kolo")
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(1000, 8), torch.randint(0, 3, (1000,)))
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(32, 3))
ddp = kolo.torch.DistributedDataParallel(model, shards=4)
optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
sampler = kolo.torch.ShardSampler(data, batch_size=32, shards=4)
loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for shards in ddp.steps(loader):
        for inputs, labels in shards:
            ddp.backward(torch.nn.functional.cross_entropy(ddp(inputs), labels), len(labels))
        optimizer.step()
        optimizer.zero_grad()
if dist.get_rank() == 0:
    print(f"result: loss {ddp.loss:.6f}, weights {ddp.weights_sha256()[:16]}")
dist.destroy_process_group()
