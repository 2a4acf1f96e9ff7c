"""kolo.torch.DistributedDataParallel: each result beside one that plain lines of torch work out. Skips without torch."""

import copy
import hashlib
import json
import os
import pathlib
import pickle
import struct
import tempfile
import unittest
import warnings

from tests.forked import outputs
from tests.ranks import needs_torch

SHARDS = 4


def start():
    """Returns torch and torch.distributed; more than one process form a group."""
    import torch
    import torch.distributed as dist

    import kolo.torch

    torch.set_num_threads(1)
    if os.environ["WORLD_SIZE"] != "1":
        dist.init_process_group("kolo")
    return torch, dist, kolo.torch


def digest(module):
    """Hash of all parameters and buffers."""
    text = hashlib.sha256()
    for name, value in module.state_dict().items():
        text.update(name.encode() + value.contiguous().view(-1).view(__import__("torch").uint8).numpy().tobytes())
    return text.hexdigest()[:16]


def convolutional(torch):
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.BatchNorm2d(8),
                         nn.ReLU(), nn.Flatten(), nn.Linear(8 * 9, 5)).to(memory_format=torch.channels_last)


def transformer(torch):
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(30, 16)
            layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
            self.layers, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 30)

        def forward(self, tokens):
            return self.out(self.layers(self.tokens(tokens))).transpose(1, 2)

    return Model()


def images(torch, rows, step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(rows, 3, 8, 8, generator=generator), torch.randint(0, 5, (rows,), generator=generator)


def texts(torch, rows, step):
    generator = torch.Generator().manual_seed(step)
    return torch.randint(0, 30, (rows, 7), generator=generator), torch.randint(0, 30, (rows, 7), generator=generator)


# The last batches do not divide by the shards; the very last one has fewer samples than shards.
SIZES = [16, 16, 11, 3]


def over_kolo():
    """Trains over Kolo; prints the hash and the losses of each network."""
    torch, dist, kolo = start()
    for make, data, options in [(convolutional, images, {"bucket_cap_mb": 0.002}), (convolutional, images, {"overlap": False}),
                                (transformer, texts, {})]:
        torch.manual_seed(5)
        ddp = kolo.DistributedDataParallel(make(torch), shards=SHARDS, seed=3, **options)
        optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
        losses = []
        for step, rows in enumerate(SIZES):
            for inputs, labels in ddp.shards(*data(torch, rows, step)):
                ddp.backward(torch.nn.functional.cross_entropy(ddp(inputs), labels), len(inputs))
            assert ddp.samples == rows
            losses.append(ddp.loss)
            optimizer.step()
            optimizer.zero_grad()
        make(torch).load_state_dict(ddp.state_dict())
        print(digest(ddp.module), losses)


def added_in_tree(values):
    """The sum of a list in the order of its binary tree, whose rest is added from the right."""
    if len(values) == 1:
        return values[0]
    left = 1
    while 2 * left < len(values):
        left *= 2
    return added_in_tree(values[:left]) + added_in_tree(values[left:])


def plain():
    """The same training in plain torch, on one process: shards one after another, their gradients added."""
    torch, _, _ = start()
    from kolo.torch._shards import stream

    for make, data in [(convolutional, images), (transformer, texts)]:
        torch.manual_seed(5)
        model = make(torch)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        for step, rows in enumerate(SIZES):
            inputs, labels = data(torch, rows, step)
            before = [buffer.clone() for buffer in model.buffers()]
            gradients, changes, shard_losses = [], [], []
            for shard in range(SHARDS):
                part = slice(shard * rows // SHARDS, (shard + 1) * rows // SHARDS)
                count = part.stop - part.start
                with torch.no_grad():
                    [buffer.copy_(base) for buffer, base in zip(model.buffers(), before)]
                torch.manual_seed(stream(3, 0, step, shard))
                optimizer.zero_grad()
                loss = torch.tensor(0.0)
                if count:
                    loss = torch.nn.functional.cross_entropy(model(inputs[part].clone()), labels[part].clone())
                    (loss * count).backward()
                gradients.append([torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()])
                changes.append([(buffer.double() - base.double()) * count for buffer, base in zip(model.buffers(), before)])
                shard_losses.append(loss.detach().double() * count)
            with torch.no_grad():
                for parameter, *parts in zip(model.parameters(), *gradients):
                    parameter.grad = added_in_tree(parts) / rows
                for buffer, base, *parts in zip(model.buffers(), before, *changes):
                    # Counts take the last shard's value, which is one more.
                    buffer.copy_(base + added_in_tree(parts) / rows if buffer.is_floating_point() else base + 1)
            losses.append(added_in_tree(shard_losses).item() / rows)
            optimizer.step()
        print(digest(model), losses)


def loaded():
    """A DataLoader of shards whose transform draws random numbers; resumed in the middle of an epoch."""
    torch, dist, kolo = start()

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 37

        def __getitem__(self, index):
            return torch.full((4,), float(index)) + torch.rand(4), index % 3

    def trained(parts):
        torch.manual_seed(1)
        ddp = kolo.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3)), 4)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.001, momentum=0.9)
        sampler = kolo.ShardSampler(Data(), batch_size=4, shards=4, seed=2)
        loader = torch.utils.data.DataLoader(Data(), batch_sampler=sampler)
        assert sampler.steps == 3 and len(loader) == len(list(sampler))
        seen = []
        for epoch, first, end in parts:
            sampler.set_epoch(epoch, first)
            for step, shards in enumerate(ddp.steps(loader), first):
                for inputs, labels in shards:
                    seen += inputs[:, 0].floor().long().tolist()
                    ddp.backward(torch.nn.functional.cross_entropy(ddp(inputs), labels), len(labels))
                assert ddp.samples == (16, 16, 5)[step], ddp.samples
                optimizer.step()
                optimizer.zero_grad()
                if step == end:
                    break
        return digest(ddp.module), seen

    whole, seen = trained([(0, 0, None), (1, 0, None)])
    everyone = [seen]
    if dist.is_initialized():
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, seen)
    assert sorted(sum(everyone, [])) == sorted(2 * list(range(37)))
    assert trained([(0, 0, None), (1, 0, 1), (1, 2, None)])[0] == whole
    print(whole)


def behaves():
    """Unused parameters, gradients that accumulate, half precision, several passes, values that are not finite, refusals."""
    torch, dist, kolo = start()
    rank = dist.get_rank() if dist.is_initialized() else 0

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.sometimes, self.never = (torch.nn.Linear(2, 2, dtype=torch.float32) for _ in range(3))
            self.scale = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))

        def forward(self, x):
            y = self.used(x) * self.scale.float()
            return self.sometimes(y) if x[0, 0] == 0 else y

    model = Model()
    ddp = kolo.DistributedDataParallel(model, shards=4)
    batch = torch.arange(16.0).view(8, 2)

    def step(batch=batch, passes=1):
        for part in ddp.shards(batch):
            for number in range(passes):
                ddp.backward(ddp(part).sum(1).mean(), len(part), last=number == passes - 1)
        return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}

    once = step()
    assert once["never.weight"] is None and once["sometimes.weight"] is not None and once["scale"].dtype is torch.bfloat16
    # One shard of four uses it: two of eight samples.
    assert torch.equal(once["sometimes.bias"], torch.full((2,), 0.25)), once["sometimes.bias"]
    # Without zero_grad the gradients of steps accumulate.
    again = step()
    assert torch.equal(again["used.weight"], once["used.weight"] * 2), (again, once)
    ddp.zero_grad()
    # Two equal passes of a shard: twice the gradient and the loss of the same samples.
    loss = ddp.loss
    twice = step(passes=2)
    torch.testing.assert_close(twice["used.weight"], 2 * once["used.weight"])
    assert ddp.samples == 8 and abs(ddp.loss - 2 * loss) <= 1e-6 * abs(loss), (ddp.samples, ddp.loss, loss)
    ddp.zero_grad()
    bad = batch.clone()
    bad[7] = float("nan")
    assert step(bad)["used.weight"].isnan().all() and ddp.loss != ddp.loss
    ddp.zero_grad()
    assert torch.equal(step()["used.weight"], once["used.weight"])

    def refused(act, *words, culprit=rank):
        try:
            act()
        except ValueError as error:
            assert all(word in str(error) for word in (f"rank {culprit}", *words)), error
            return
        raise AssertionError(words)

    refused(lambda: ddp(batch), "within")
    refused(lambda: ddp.no_sync(), "no_sync")
    refused(lambda: ddp.shards(batch, batch[1:]), "8 and 7")
    refused(lambda: next(ddp.steps(batch)), "ShardSampler", "not a Tensor", "ddp.shards(inputs, labels)")
    loader = torch.utils.data.DataLoader(batch)
    refused(lambda: next(ddp.steps(loader)), "batch_sampler=kolo.torch.ShardSampler")
    refused(lambda: ddp.shards(loader), "not a DataLoader", "ddp.steps(loader)")
    refused(lambda: ddp.shards(torch.tensor(1.0)), "one entry a sample, not a Tensor")
    refused(lambda: kolo.DistributedDataParallel(Model(), shards=0), "shards is 0")
    with torch.no_grad():
        ddp(batch)
    # Statistics that each rank would take from other samples.
    counting = kolo.DistributedDataParallel(torch.nn.BatchNorm1d(2), 4)
    with torch.no_grad():
        refused(lambda: counting(torch.ones(4, 2)), "eval()")
        counting.eval()(torch.ones(4, 2))
    refused(lambda: copy.deepcopy(ddp), "ddp.module")
    refused(lambda: pickle.dumps(ddp), "state_dict")
    sparse = kolo.DistributedDataParallel(torch.nn.Embedding(9, 2, sparse=True), 4)

    def of_sparse():
        for part in sparse.shards(torch.arange(8)):
            sparse.backward(sparse(part).sum(), 2)

    refused(of_sparse, "parameter weight is sparse")
    forgotten = kolo.DistributedDataParallel(torch.nn.Linear(2, 1), 4)

    def without_backward():
        for part in forgotten.shards(batch):
            forgotten(part)

    refused(without_backward, "no call of ddp.backward", culprit=0)
    direct = kolo.DistributedDataParallel(torch.nn.Linear(2, 1), 4)

    def of_direct():
        for part in direct.shards(batch):
            direct(part).sum().backward()

    refused(of_direct, "not loss.backward()")
    refused(of_direct, "was left in shard")
    if dist.is_initialized():
        refused(lambda: kolo.DistributedDataParallel(torch.nn.Linear(2, 1 + rank), 4), "float32[1, 2]", "rank 1")
        refused(lambda: kolo.DistributedDataParallel(torch.nn.Linear(2, 1), 4, seed=rank), "seed is 0 on rank 0 and 1 on rank 1")
        other = kolo.DistributedDataParallel(torch.nn.Linear(2, 1), 4)

        def of_others():
            for part in other.shards(batch[rank:]):
                other.backward(other(part).mean(), len(part))

        refused(of_others, "rank 1", "7 and 8 samples")

    def of_other_data(*parts):
        model = kolo.DistributedDataParallel(torch.nn.Linear(2, 1), 4)
        for part, _ in model.shards(*parts):
            model.backward(model(part).mean(), len(part))

    changed = batch.clone()
    changed[-1, -1] += rank
    pairs = [(changed, labels) for labels in (batch, list(range(8)))] + [(batch, [f"name {row + rank}" for row in range(8)])]
    pairs += [(batch, torch.full((8,), float("nan") if rank else float("inf"))), (batch, torch.full((8,), rank + 1j))]
    for pair in pairs:
        if dist.is_initialized():
            refused(lambda: of_other_data(*pair), "8 samples has other data than rank 0's", "differ: rank 1", culprit=1)
    # The same data is the same in any memory, and objects are not read.
    for labels in (batch.t().contiguous().t(), torch.full((8,), float("nan")), torch.empty(8, 0), [object() for _ in range(8)]):
        of_other_data(batch, labels)


def two_losses():
    """Cross entropy and an auxiliary loss of each shard, by two backward passes, beside plain torch on the whole batch. The
    shards differ in size."""
    torch, dist, kolo = start()
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    alone = copy.deepcopy(model)
    inputs, labels = torch.randn(11, 4), torch.randint(0, 3, (11,))

    def losses(net, inputs, labels):
        scores = net(inputs)
        return torch.nn.functional.cross_entropy(scores, labels), 0.3 * scores.square().sum(1).mean()

    expected = losses(alone, inputs, labels)
    for loss in expected:
        loss.backward(retain_graph=True)
    for overlap in (True, False):
        ddp = kolo.DistributedDataParallel(copy.deepcopy(model), SHARDS, overlap=overlap, bucket_cap_mb=0.0001)
        for part, classes in ddp.shards(inputs, labels):
            entropy, auxiliary = losses(ddp, part, classes)
            ddp.backward(entropy, len(part), last=False, retain_graph=True)
            ddp.backward(auxiliary, len(part))
        for ours, theirs in zip(ddp.parameters(), alone.parameters()):
            torch.testing.assert_close(ours.grad, theirs.grad)
        assert ddp.samples == 11 and abs(ddp.loss - sum(expected).item()) < 1e-5, (ddp.samples, ddp.loss, expected)
    for first, second in ((2, 1), (2, 0), (0, 2)):
        refusing = kolo.DistributedDataParallel(copy.deepcopy(model), SHARDS)
        try:
            for part in refusing.shards(inputs):
                refusing.backward(refusing(part).mean(), first, last=False)
                refusing.backward(refusing(part).mean(), second)
            raise AssertionError("other samples in one shard")
        except ValueError as error:
            assert f"this pass has {second} samples, and the one before {first}" in str(error), error


def traced():
    """Trains three steps twice, as kolo verify has it trained: uncut, and with a restart after step 1."""
    torch, dist, kolo = start()
    for resume in ("", "1"):
        file = os.path.join(os.environ["TRACES"], f"{os.environ['WORLD_SIZE']}-{resume}")
        os.environ.update(KOLO_VERIFY_FILE=file, KOLO_VERIFY_STEPS="3", KOLO_VERIFY_RESUME=resume, KOLO_VERIFY_BUCKET_CAP_MB="0.0001")
        torch.manual_seed(5)
        ddp = kolo.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)), SHARDS)
        optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
        for step in range(4):
            generator = torch.Generator().manual_seed(step)
            for inputs, labels in ddp.shards(torch.randn(10, 4, generator=generator), torch.randint(0, 3, (10,), generator=generator)):
                ddp.backward(torch.nn.functional.cross_entropy(ddp(inputs), labels), len(labels))
            optimizer.step()
            optimizer.zero_grad()
            print(ddp.loss)
    if dist.is_initialized():
        return
    for words in ("programs with one model", "kolo chaos has nothing to test"):
        try:
            next(iter(kolo.DistributedDataParallel(torch.nn.Linear(2, 1), SHARDS).shards(torch.ones(4, 2))))
            raise AssertionError(words)
        except ValueError as error:
            assert words in str(error), error
        os.environ.pop("KOLO_VERIFY_STEPS", None)


def divides_the_optimizer():
    """Trains with a part of the optimizer's state on each of several ranks, also resumed; with all of it on one."""
    torch, dist, kolo = start()
    from torch.distributed.optim import ZeroRedundancyOptimizer

    world = os.environ["WORLD_SIZE"]
    os.environ.update(KOLO_VERIFY_FILE=os.path.join(os.environ["TRACES"], world), KOLO_VERIFY_STEPS="3")
    if world != "1":
        os.environ["KOLO_VERIFY_RESUME"] = "2"
    torch.manual_seed(5)
    ddp = kolo.DistributedDataParallel(transformer(torch), SHARDS)
    if world == "1":
        optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    else:
        optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.AdamW, lr=0.01)
        assert 0 < len(optimizer.optim.param_groups[0]["params"]) < len(list(ddp.parameters()))
    for step, rows in enumerate([16, 11, 5]):
        for inputs, labels in ddp.shards(*texts(torch, rows, step)):
            ddp.backward(torch.nn.functional.cross_entropy(ddp(inputs), labels), len(inputs))
        optimizer.step()
        optimizer.zero_grad()


@needs_torch
class DataParallelTest(unittest.TestCase):
    def test_equal_to_plain_torch_on_any_number_of_ranks(self):
        [[expected]] = outputs(self, [1], plain)
        network, text = expected.splitlines()
        for ranks in outputs(self, [1, 2, 3, 4], over_kolo):
            for output in ranks:
                self.assertEqual(output.splitlines(), [network, network, text], f"with {len(ranks)} ranks")

    def test_loader_and_resume(self):
        found = {output for ranks in outputs(self, [1, 2], loaded) for output in ranks}
        self.assertEqual(len(found), 1, found)

    def test_samplers_divide_the_same_steps(self):
        from kolo.torch import ShardSampler

        def steps(size):
            samplers = [ShardSampler(37, 3, 5, seed=1, rank=rank, size=size) for rank in range(size)]
            batches = [iter(sampler) for sampler in samplers]
            for sampler in samplers:
                self.assertEqual(len(sampler), len(list(sampler)))
            return [[[next(own) for count in sampler.counts(step) if count] for sampler, own in zip(samplers, batches)]
                    for step in range(samplers[0].steps)]

        alone = [ranks[0] for ranks in steps(1)]
        self.assertEqual([[len(shard) for shard in step] for step in alone], [[3] * 5, [3] * 5, [1, 1, 2, 1, 2]])
        self.assertEqual(sorted(sum(sum(alone, []), [])), list(range(37)))
        for size in (2, 3, 5):
            self.assertEqual([sum(ranks, []) for ranks in steps(size)], alone)

    def test_kolo_verify_finds_the_same_trace_for_any_number_of_ranks(self):
        import torch

        with tempfile.TemporaryDirectory() as folder:
            [[alone], _] = outputs(self, [1, 2], traced, TRACES=folder)
            traces = {path.name: [json.loads(line) for line in path.read_text().splitlines()]
                      for path in pathlib.Path(folder).iterdir() if path.suffix != ".checkpoint"}
            self.assertEqual(sorted(traces), ["1-", "1-1", "2-", "2-1"])
        torch.manual_seed(5)
        weight = torch.nn.Linear(4, 3).weight.detach()
        first, losses = traces["1-"], [float(line) for line in alone.splitlines()]
        self.assertEqual(first[0]["tensors"][0]["name"], "0.weight")
        self.assertEqual(first[0]["tensors"][0]["print"], hashlib.blake2b(weight.numpy().tobytes(), digest_size=8).hexdigest())
        self.assertEqual([tensor["name"] for tensor in first[0]["tensors"] if tensor["statistic"]],
                         ["1.running_mean", "1.running_var", "1.num_batches_tracked"])
        self.assertEqual([(step["step"], step["loss"], step["count"]) for step in first[1:]], [(n, losses[n], 10.0) for n in range(3)])
        self.assertEqual(first[1]["loss_bits"], struct.pack(">d", losses[0]).hex())
        self.assertEqual(losses[:4], losses[4:])
        for name, (begin, *steps) in traces.items():
            self.assertEqual(steps, first[1:], name)
            self.assertEqual((begin["world_size"], begin["shards"], begin["foreign"]), (int(name[0]), SHARDS, True))
            self.assertEqual(begin["tensors"], first[0]["tensors"], name)

    def test_a_divided_optimizer_has_the_same_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            outputs(self, [1, 2, 3], divides_the_optimizer, TRACES=folder)
            traces = [(pathlib.Path(folder) / world).read_text().splitlines()[1:] for world in "123"]
        self.assertEqual(len(traces[0]), 3)
        self.assertEqual(traces[1:], [traces[0]] * 2)

    def test_random_transforms_in_worker_processes_are_named(self):
        from kolo.torch._loaders import warn_of_random_transforms

        class RandomCrop:
            pass

        class Fixed:
            pass

        class Loader:
            def __init__(self, workers, transform):
                self.num_workers, self.dataset = workers, type("Subset", (), {"dataset": type("Data", (), {"transform": transform})})

        for loader, names in [(Loader(2, RandomCrop()), ["RandomCrop"]), (Loader(0, RandomCrop()), []), (Loader(2, Fixed()), [])]:
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                warn_of_random_transforms(loader)
            self.assertEqual(len(found), len(names), found)
            self.assertTrue(all(name in str(one.message) for name, one in zip(names, found)), found)

    def test_several_losses_add_up_as_in_plain_torch(self):
        outputs(self, [1, 2, 3], two_losses)

    def test_what_it_does_and_refuses(self):
        outputs(self, [1, 2], behaves)


if __name__ == "__main__":
    unittest.main()
