//! The cost of `KOLO_ENCRYPT=1`: two ranks all-reduce over TCP, alternately in a plain and a sealed group.
//!
//! `cargo run --release -p kolo-comm --example encrypt_cost`

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use kolo_comm::env::WorkerEnv;
use kolo_comm::{Collective, Error, Group, Op, Options, Rank, TCP, Token};

/// All gradients of ResNet-18, 46.8 MB, and smaller messages; the second number is that of the rounds.
const LENGTHS: [(usize, usize); 3] = [(11_699_132, 40), (262_144, 400), (256, 4000)];

fn group(rank: usize, master: SocketAddr, encrypt: bool) -> Result<Group, Error> {
    let options = Options {
        transport: Some(&TCP),
        token: Some(Token::new("a token that is no secret")?),
        encrypt,
        ..Options::default()
    };
    Group::join(&WorkerEnv { rank: Rank(rank), world_size: 2, endpoint: master.into() }, &options)
}

/// Median times of the plain and of the encrypted group.
fn measure(groups: &[Group; 2], len: usize, rounds: usize) -> Result<[Duration; 2], Error> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (group, times) in groups.iter().zip(&mut times) {
            let buffer = group.alloc::<f32>(len)?;
            group.barrier()?;
            let started = Instant::now();
            group.run(&Collective::AllReduce(Op::Sum), buffer)?;
            times.push(started.elapsed());
        }
    }
    Ok(times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    }))
}

fn rank(rank: usize, masters: [SocketAddr; 2]) -> Result<(), Error> {
    let groups = [group(rank, masters[0], false)?, group(rank, masters[1], true)?];
    for (len, rounds) in LENGTHS {
        let [plain, sealed] = measure(&groups, len, rounds)?;
        if rank == 0 {
            let more = (sealed.as_secs_f64() / plain.as_secs_f64() - 1.0) * 100.0;
            println!("{:>11} bytes: plain {plain:>10.1?}, encrypted {sealed:>10.1?}, {more:+.0} %", 4 * len);
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Both listeners are open at once, so the ports differ.
    let ports = [TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?];
    let masters = [ports[0].local_addr()?, ports[1].local_addr()?];
    drop(ports);
    let other = std::thread::spawn(move || rank(1, masters));
    rank(0, masters)?;
    other.join().map_err(|_| "rank 1 panicked")??;
    Ok(())
}
