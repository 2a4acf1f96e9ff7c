"""torch.distributed.checkpoint: saves a model of FSDP2, changes it, and loads it."""
import tempfile, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard

dist.init_process_group("kolo")
torch.manual_seed(0)
model = fully_shard(torch.nn.Linear(8, 8), mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
dist.broadcast_object_list(folder := [tempfile.mkdtemp()])
before = model.weight.full_tensor()
dcp.save(state := model.state_dict(), checkpoint_id=folder[0])
with torch.no_grad():
    model.weight.zero_()
dcp.load(state := model.state_dict(), checkpoint_id=folder[0])
model.load_state_dict(state)
same = torch.equal(model.weight.full_tensor(), before)
if dist.get_rank() == 0:
    print(f"result: the same weights: {same}")
dist.destroy_process_group()
