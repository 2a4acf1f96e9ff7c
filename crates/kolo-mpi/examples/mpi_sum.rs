//! Sums the ranks of all workers by MPI:
//!
//! ```sh
//! cargo build --release -p kolo-mpi --features mpi --example mpi_sum
//! KOLO_BACKEND=mpi mpirun -n 3 target/release/examples/mpi_sum
//! ```
//!
//! Without `KOLO_BACKEND` the same program forms a native group, which any launcher can start.

use kolo_comm::{Error, Group, Op, Options};

fn main() {
    if let Err(error) = sum() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn sum() -> Result<(), Error> {
    let group = Group::of_job(&Options::from_env_with(&[&kolo_mpi::BACKEND])?)?;
    let mut sum = [group.rank().0 as f32];
    group.all_reduce(&mut sum, Op::Sum)?;
    println!("{} of {} by {}: {}", group.rank(), group.world_size(), group.transport(), sum[0]);
    Ok(())
}
