//! NCCL on this machine's GPUs, one rank each: first every operation on every type against the native group, then
//! all-reduce at several sizes, every element verified. The same as `kolo bench all-reduce --backend nccl`, without Burn:
//!
//! ```sh
//! cargo build --release -p kolo-nccl --example all_reduce
//! torchrun --nproc-per-node 2 --no-python target/release/examples/all_reduce
//! ```
//!
//! Sizes in bytes may follow.

use std::sync::Arc;
use std::time::Duration;

use kolo_comm::{Error, Group};
use kolo_nccl::{DeviceGroup, Measured};

const SIZES: [usize; 6] = [4, 1024, 65_536, 1_048_576, 16_777_216, 100_000_000];

fn main() {
    env_logger::init();
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Error> {
    let sizes = std::env::args().skip(1).map(|size| {
        let bytes = size.parse().ok().filter(|bytes: &usize| *bytes > 0 && bytes.is_multiple_of(4));
        bytes.ok_or_else(|| Error::Invalid(format!("{size}: give a multiple of 4 bytes, greater than 0")))
    });
    let mut sizes = sizes.collect::<Result<Vec<usize>, Error>>()?;
    if sizes.is_empty() {
        sizes = SIZES.to_vec();
    }
    let devices = DeviceGroup::local(&Arc::new(Group::from_env()?))?;
    let first = devices.rank().0 == 0;
    let compared = kolo_nccl::check(&devices)?;
    if first {
        println!(
            "# {} ranks, {}; {compared} results are the native group's",
            devices.world_size(),
            devices.describe()
        );
        let columns = ["bytes", "mean µs", "p50 µs", "p99 µs", "algbw GB/s", "busbw GB/s"];
        println!("{}", columns.map(|column| format!("{column:>12}")).join(" "));
    }
    for bytes in sizes {
        let row = kolo_nccl::measure_all_reduce(&devices, bytes, Duration::from_secs(1))?;
        if first {
            let Measured { mean_us, p50_us, p99_us, algbw_gbps, busbw_gbps, .. } = row;
            println!(
                "{bytes:>12} {mean_us:>12.1} {p50_us:>12.1} {p99_us:>12.1} {algbw_gbps:>12.3} {busbw_gbps:>12.3}"
            );
        }
    }
    Ok(())
}
