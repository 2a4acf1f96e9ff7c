//! NCCL on this machine's GPUs, one rank each. It compares every operation on every type with the native
//! group, then prints the median time of an all-reduce at several sizes. `kolo bench all-reduce --backend
//! nccl` measures more; this example needs no tensor library:
//!
//! ```sh
//! cargo build --release -p kolo-nccl --example all_reduce
//! torchrun --nproc-per-node 2 --no-python target/release/examples/all_reduce
//! ```

use std::sync::Arc;
use std::time::Instant;

use kolo_comm::{Collectives, Error, Group, Op};
use kolo_nccl::DeviceGroup;

/// Numbers of `f32` elements to sum.
const LENGTHS: [usize; 4] = [1, 1 << 10, 1 << 18, 25_000_000];
/// Number of sums of each length; the first ones do not count.
const SUMS: usize = 25;
const WARM_UP: usize = 5;

fn main() {
    env_logger::init();
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Error> {
    let devices = DeviceGroup::local(&Arc::new(Group::from_env()?))?;
    let compared = kolo_testing::assert_same_results(&devices, &**devices.group());
    let (world, first) = (devices.world_size(), devices.rank().0 == 0);
    if first {
        println!("{world} ranks, {}: {compared} results are the native group's", devices.describe());
    }
    for len in LENGTHS {
        let mut times = Vec::new();
        let mut buffer = devices.alloc::<f32>(len)?;
        for _ in 0..SUMS {
            devices.barrier()?;
            let began = Instant::now();
            buffer = devices.all_reduce(buffer, Op::Sum)?;
            times.push(began.elapsed());
        }
        times.drain(..WARM_UP);
        times.sort();
        if first {
            println!("{:>11} bytes: {:.1?}", 4 * len, times[times.len() / 2]);
        }
    }
    Ok(())
}
