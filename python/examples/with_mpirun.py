"""mpirun and srun: torch reads the variables of torchrun, so these are set from theirs. mpirun -n 2 python with_mpirun.py"""
import os, torch, torch.distributed as dist

THEIRS = [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")]
rank, size = next(pair for pair in [("RANK", "WORLD_SIZE"), *THEIRS] if pair[0] in os.environ)
os.environ.update(RANK=os.environ[rank], WORLD_SIZE=os.environ[size])
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")           # the host of rank 0
os.environ.setdefault("MASTER_PORT", "29517")
dist.init_process_group("kolo")
dist.all_reduce(numbers := torch.full((2,), float(dist.get_rank() + 1)))
if dist.get_rank() == 0:
    print(f"result: {numbers.tolist()} of {dist.get_world_size()} processes")
dist.destroy_process_group()
