//! Exchanges a value between two workers of a job, here threads, through a store.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use kolo_rendezvous::env::WorkerEnv;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::{FailureDetector, Store};
use kolo_rendezvous::{Error, Liveness, establish_store};
use kolo_schedule::Rank;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends a value to the other rank and returns the value that the other rank sent.
fn exchange(worker: &WorkerEnv) -> Result<Option<String>, Error> {
    let access = Access::default();
    // Rank 0 serves the store as long as `server` lives.
    let (server, address) = establish_store(worker, &access, TIMEOUT)?;
    // `connect` waits until rank 0 serves the store; the failure detector does not wait, it reports a loss.
    let mut store = Store::connect(address, &access, TIMEOUT)?;
    let liveness = Arc::new(Liveness::new(worker.world_size));
    let detector = FailureDetector::start(address, worker.rank, liveness, &access, TIMEOUT)?;
    let (own, other) = (worker.rank.0, 1 - worker.rank.0);
    store.set(&format!("value/{own}"), format!("hello from rank {own}"))?;
    let value = store.get(&format!("value/{other}"), TIMEOUT)?;
    // This rank leaves in good order. Rank 0 serves until the other rank has left, too.
    drop(detector);
    if let Some(server) = server {
        server.linger(TIMEOUT);
    }
    Ok(value)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A launcher sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; `WorkerEnv::from_env()` reads them.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let workers = [0, 1].map(|rank| {
        let worker = WorkerEnv { rank: Rank(rank), world_size: 2, endpoint: address.into() };
        std::thread::spawn(move || exchange(&worker))
    });
    for (rank, worker) in workers.into_iter().enumerate() {
        let value = worker.join().expect("no worker panics")?;
        println!("rank {rank} got: {}", value.ok_or("no value in time")?);
    }
    Ok(())
}
