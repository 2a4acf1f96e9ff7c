//! The smallest group: sums the ranks of all its workers. Any launcher can start it:
//!
//! ```sh
//! cargo build --release -p kolo-comm --example sum
//! kolo launch --nproc 3 -- target/release/examples/sum
//! torchrun --nproc-per-node 3 --no-python target/release/examples/sum
//! mpirun -n 3 target/release/examples/sum
//! srun -n 3 target/release/examples/sum
//! ```

use kolo_comm::{Error, Group, Op};

fn main() {
    env_logger::init();
    if let Err(error) = sum() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn sum() -> Result<(), Error> {
    let group = Group::from_env()?;
    let mut sum = [group.rank().0 as f32];
    group.all_reduce(&mut sum, Op::Sum)?;
    println!("{} of {} on {}: {}", group.rank(), group.world_size(), group.transport(), sum[0]);
    Ok(())
}
