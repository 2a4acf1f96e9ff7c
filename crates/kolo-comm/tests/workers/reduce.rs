//! A worker of the tests in `failures.rs`: reduces until the group fails, and says why. Its argument is
//! `reduce`, or `panic` for a job whose rank 1 panics.

use kolo_comm::{Error, Group, Op, Rank};

fn main() {
    let panics = std::env::args().nth(1).as_deref() == Some("panic");
    if let Err(error) = reduce(panics) {
        println!("error: {error}");
    }
}

fn reduce(panics: bool) -> Result<(), Error> {
    let group = Group::from_env()?;
    // Another rank may be past the barrier, and have failed, before this one is.
    group.barrier()?;
    println!("ready");
    assert!(!panics || group.rank() != Rank(1), "on purpose");
    let mut data = vec![1f32; 100_000];
    loop {
        group.all_reduce(&mut data, Op::Average)?;
    }
}
