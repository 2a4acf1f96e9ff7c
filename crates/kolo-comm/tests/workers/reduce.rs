//! A worker of the tests in `failures.rs` and `deferred.rs`. Its argument selects its behavior:
//!
//! | argument | behavior |
//! |---|---|
//! | `reduce` | reduces until the group fails, and prints the error |
//! | `panic` | rank 1 panics |
//! | `few-files` | reduces many buffers, though a process may have few files open |
//! | `no-files` | rank 1 opens as many files as it may; it prints two errors of the group |
//! | `die-deferred` | rank 1 dies after a deferred sum has been started; then the other ranks read it |

use std::fs::File;
use std::sync::Arc;

use kolo_comm::tree::Contributions;
use kolo_comm::{Collective, Error, Group, Op, Rank, SumParts};
use rustix::process::{Resource, Rlimit, setrlimit};

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let result = match &*mode {
        "few-files" => many_buffers(),
        "no-files" => without_files(),
        "die-deferred" => die_deferred(),
        _ => reduce(mode == "panic"),
    };
    if let Err(error) = result {
        println!("error: {error}");
    }
}

fn reduce(panics: bool) -> Result<(), Error> {
    let group = Group::from_env()?;
    // Another rank may pass the barrier and fail before this one passes it.
    group.barrier()?;
    println!("ready");
    assert!(!panics || group.rank() != Rank(1), "on purpose");
    let mut data = vec![1f32; 100_000];
    loop {
        group.all_reduce(&mut data, Op::Average)?;
    }
}

fn allow_files(count: u64) {
    setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum: Some(count) }).unwrap();
}

fn many_buffers() -> Result<(), Error> {
    allow_files(48);
    let group = Group::from_env()?;
    let mut buffers = Vec::new();
    for number in 0..200 {
        let buffer = group.copied(&vec![number as f32; 5000])?;
        buffers.push(group.run(&Collective::AllReduce(Op::Sum), buffer)?);
    }
    let is_sum = |(number, buffer): (usize, &kolo_comm::Buffer<f32>)| {
        buffer.iter().all(|x| *x == (number * group.world_size()) as f32)
    };
    println!("{} buffers are right", buffers.iter().enumerate().filter(|each| is_sum(*each)).count());
    group.barrier()
}

fn without_files() -> Result<(), Error> {
    allow_files(100);
    let group = Group::from_env()?;
    group.barrier()?;
    let mut files = Vec::new();
    while group.rank() == Rank(1)
        && let Ok(file) = File::open("/dev/null")
    {
        files.push(file);
    }
    let reduce = || group.run(&Collective::AllReduce(Op::Sum), group.alloc::<f32>(100_000)?).map(drop);
    if let Err(error) = reduce() {
        println!("first: {error}");
    }
    reduce()
}

fn die_deferred() -> Result<(), Error> {
    const LEN: usize = 100_000;
    let group = Group::from_env()?;
    let own = vec![group.rank().0 as f32 + 1.0; LEN];
    let contributions = Arc::new(Contributions::one_each(group.world_size()));
    let parts = SumParts { contributions, len: LEN, buffer: group.copied(&own)? };
    let (mut sum, _) = group.defer_sums(vec![parts])?.remove(0);
    if group.rank() == Rank(1) {
        std::process::abort();
    }
    // Ends when the other ranks are dead.
    let died = group.barrier();
    let mut all = vec![0.0; LEN];
    sum.add_into(0..LEN, &mut all);
    println!("{} elements are right", all.iter().filter(|x| **x == 3.0).count());
    died
}
