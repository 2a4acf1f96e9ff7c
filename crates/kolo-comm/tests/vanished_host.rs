//! A host that vanishes without notice, as after a power loss: all of its packets are lost.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::Duration;

use kolo_comm::env::WorkerEnv;
use kolo_comm::{Error, Group, Op, Options, Rank, Token};
use kolo_testing::TwoHosts;
use kolo_testing::harness::{run, test_where};

fn main() -> ExitCode {
    run(vec![test_where("each_host_names_the_other_one", each_host_names_the_other_one)])
}

/// Both hosts live, and neither receives anything from the other any more. Each reports the other's
/// death, long before any deadline of the job.
fn each_host_names_the_other_one() -> Result<(), String> {
    let hosts = TwoHosts::new()?;
    let master = SocketAddr::from((hosts.address(0), 29_500));
    let joined = Barrier::new(3);
    std::thread::scope(|scope| {
        let start = |rank: usize| {
            let (hosts, joined) = (&hosts, &joined);
            scope.spawn(move || {
                hosts.enter(rank);
                let env = WorkerEnv { rank: Rank(rank), world_size: 2, endpoint: master.into() };
                let token = Some(Token::new("of a test of hosts that vanish").unwrap());
                let timeout = Some(Duration::from_secs(600));
                let group = Group::join(&env, &Options { token, timeout, ..Options::default() }).unwrap();
                group.all_reduce(&mut [1f32; 10], Op::Sum).unwrap();
                joined.wait();
                let died = loop {
                    if let Err(error) = group.all_reduce(&mut vec![1f32; 1 << 20], Op::Sum) {
                        break error;
                    }
                };
                assert!(matches!(died, Error::Died { rank: Rank(other) } if other == 1 - rank), "{died}");
            })
        };
        let ranks = [start(0), start(1)];
        joined.wait();
        hosts.cut();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
    });
    Ok(())
}
