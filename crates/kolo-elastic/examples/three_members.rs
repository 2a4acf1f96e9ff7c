//! A coordinator and three members, all threads of this process: one leaves, and the others form the next
//! generation and go on summing.
//!
//! ```sh
//! cargo run -p kolo-elastic --example three_members
//! ```
//!
//! In a real job a launcher runs the coordinator, and the members are processes of their own (`kolo
//! launch`).

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use kolo_comm::{Error, Group, JobMembership, Op, Options};
use kolo_elastic::{Coordinator, CoordinatorEvent, Member, MemberExit, MembershipPolicy, member_name};

const STEPS: usize = 5;

fn main() -> Result<(), Error> {
    let policy = MembershipPolicy {
        min_members: 2,
        start_timeout: Duration::from_secs(60),
        rejoin_timeout: Duration::from_secs(60),
        too_few_timeout: Duration::from_secs(60),
    };
    let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
    let (coordinator, events) = Coordinator::single_node(anywhere, 3, policy, &Options::default())?;
    let names: Vec<String> = (0..3).map(|local| member_name(0, local, 0)).collect();
    // The first generation waits for all members that have started.
    names.iter().for_each(|name| coordinator.member_started(name));
    std::thread::scope(|scope| {
        let run = |name| {
            let result = train(coordinator.address(), name);
            // A launcher reports this when it sees that the process has ended. Others wait for this member
            // until then.
            coordinator.member_exited(name, &exit(&result));
            result
        };
        let members: Vec<_> = names.iter().map(|name| scope.spawn(move || run(name))).collect();
        members.into_iter().try_for_each(|member| member.join().expect("a member panicked"))
    })?;
    for event in events.try_iter() {
        if let CoordinatorEvent::GenerationFormed { generation, members, reason } = event {
            println!("generation {generation}: {} ({reason})", members.join(", "));
        }
    }
    Ok(())
}

/// The end of a member, as a launcher would report it.
fn exit(result: &Result<(), Error>) -> MemberExit {
    match result {
        Ok(()) => MemberExit::Clean,
        Err(error) => MemberExit::Failed(format!("failed: {error}")),
    }
}

/// Runs one member: two generations of sums. The last member leaves after the first.
fn train(address: SocketAddr, name: &str) -> Result<(), Error> {
    let mut member = Member::connect(address, name, &Options::default())?;
    let first = member.next_group(None)?;
    sum(name, &first)?;
    if first.rank().0 == first.world_size() - 1 {
        println!("{name}: leaves");
        return Ok(());
    }
    let second = member.next_group(Some("one member has left"))?;
    sum(name, &second)
}

/// Sums a one of each member, [`STEPS`] times.
fn sum(name: &str, group: &Group) -> Result<(), Error> {
    let mut data = [0.0f32];
    for _ in 0..STEPS {
        data = [1.0];
        group.all_reduce(&mut data, Op::Sum)?;
    }
    println!("{name}: {} of {}, sum {}", group.rank(), group.world_size(), data[0]);
    Ok(())
}
