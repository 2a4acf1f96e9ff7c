"""A GAN: two models, each with an optimizer and a loop over its shards. Gradients are cleared after either step, because
the generator's loss leaves some in the critic."""
import torch, torch.distributed as dist, kolo.torch
from torch.nn.functional import binary_cross_entropy_with_logits as loss_of

dist.init_process_group("kolo")
torch.manual_seed(0)
layers = [torch.nn.Sequential(torch.nn.Linear(a, 32), torch.nn.LeakyReLU(0.2), torch.nn.Linear(32, b)) for a, b in [(4, 2), (2, 1)]]
generator, critic = (kolo.torch.DistributedDataParallel(model, shards=4) for model in layers)
optimizers = [torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.5, 0.99)) for model in (generator, critic)]


def step(optimizer):
    optimizer.step()
    [each.zero_grad() for each in optimizers]


for number in range(300):
    batch = torch.randn(64, 2, generator=torch.Generator().manual_seed(number)) * 0.3 + torch.tensor([2.0, -1.0])
    for real in critic.shards(batch):                                   # within it the other model is called by `module`
        scores = critic(torch.cat([real, generator.module(torch.randn(len(real), 4)).detach()]))
        critic.backward(loss_of(scores, torch.cat([torch.ones(len(real), 1), torch.zeros(len(real), 1)])), len(real))
    step(optimizers[1])
    for real in generator.shards(batch):
        scores = critic.module(generator(torch.randn(len(real), 4)))
        generator.backward(loss_of(scores, torch.ones(len(real), 1)), len(real))
    step(optimizers[0])
x, y = generator.module(torch.randn(1000, 4, generator=torch.Generator().manual_seed(0))).mean(0).tolist()
if dist.get_rank() == 0:
    print(f"result: center {x:.2f}, {y:.2f} of 2.00, -1.00; weights {generator.weights_sha256()[:16]}")
dist.destroy_process_group()
