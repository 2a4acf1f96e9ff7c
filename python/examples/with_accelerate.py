"""Accelerate: the group is there before the Accelerator, which takes no other backend's name on CPUs."""
import torch, torch.distributed as dist
from accelerate import Accelerator

dist.init_process_group("kolo")
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model, loader = torch.nn.Linear(8, 8), torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), loader)
for batch in loader:
    loss = (model(batch) - batch).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
losses = accelerator.gather(loss.detach().reshape(1))
if accelerator.is_main_process:
    print(f"result: loss {losses.mean().item():.4f} of {len(losses)} processes")
accelerator.end_training()
