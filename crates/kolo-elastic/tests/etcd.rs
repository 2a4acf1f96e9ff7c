//! A job whose generations a real etcd grants: either of two launchers may die, and etcd may be restarted.

use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use kolo_comm::{JobMembership, Options};
use kolo_elastic::{
    Arbiter, Coordinator, CoordinatorEvent, Member, MembershipPolicy, NodeConfig, member_name,
};
use kolo_testing::harness::{run, test_of};
use kolo_testing::{Etcd, free_port};

fn main() -> ExitCode {
    run(vec![
        test_of("etcd", "the_second_launcher_goes_on_alone", the_second_launcher_goes_on_alone),
        test_of("etcd", "an_etcd_that_is_away_is_waited_for", an_etcd_that_is_away_is_waited_for),
        test_of("etcd", "an_etcd_that_starts_late_is_waited_for", an_etcd_that_starts_late_is_waited_for),
        test_of("etcd", "an_etcd_that_never_starts_is_named", an_etcd_that_never_starts_is_named),
        test_of("etcd", "a_launcher_with_another_etcd_is_refused", a_launcher_with_another_etcd_is_refused),
    ])
}

const POLICY: MembershipPolicy = MembershipPolicy {
    min_members: 1,
    start_timeout: Duration::from_secs(60),
    rejoin_timeout: Duration::from_secs(60),
    too_few_timeout: Duration::from_secs(60),
};
/// Exceeded only by a hang, even on the busiest machine.
const HANG: Duration = Duration::from_secs(120);

fn arbiter(etcd: &Etcd) -> Arbiter {
    // The first member never listens: the arbiter must ask the next one.
    Arbiter::parse(&format!("etcd://{},{}", free_port(), etcd.endpoint())).unwrap()
}

struct Node {
    coordinator: Coordinator,
    events: Receiver<CoordinatorEvent>,
}

fn config(master: u16, rank: usize, arbiter: &Arbiter) -> NodeConfig {
    NodeConfig {
        masters: vec![("127.0.0.1".into(), master)],
        node_rank: Some(rank),
        min_nodes: 2,
        max_nodes: 2,
        local_workers: 1,
        start_timeout: POLICY.start_timeout,
        arbiter: arbiter.clone(),
    }
}

fn node(master: u16, rank: usize, arbiter: &Arbiter) -> Node {
    let config = config(master, rank, arbiter);
    let (coordinator, events) = Coordinator::multi_node(config, 1, POLICY, &Options::default()).unwrap();
    coordinator.member_started(&member_name(rank, 0, 0));
    Node { coordinator, events }
}

impl Node {
    fn member(&self, rank: usize) -> Member {
        Member::connect(self.coordinator.address(), &member_name(rank, 0, 0), &Options::default()).unwrap()
    }

    /// Waits for an event, and skips others before it.
    fn wait<T>(&self, what: &str, mut wanted: impl FnMut(CoordinatorEvent) -> Option<T>) -> T {
        let until = Instant::now() + HANG;
        while let Ok(event) = self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if let Some(found) = wanted(event) {
                return found;
            }
        }
        panic!("no {what}")
    }
}

/// Starts two nodes, and returns them and their members in generation 1.
fn begun(arbiter: &Arbiter) -> ([Node; 2], [Member; 2]) {
    let master = free_port().port();
    let nodes = [0, 1].map(|rank| node(master, rank, arbiter));
    let mut members = [0, 1].map(|rank| nodes[rank].member(rank));
    std::thread::scope(|scope| {
        let forming = members.each_mut().map(|member| scope.spawn(|| member.next_group(None).unwrap()));
        let groups = forming.map(|forming| forming.join().unwrap());
        assert!(groups.iter().all(|group| group.world_size() == 2));
    });
    (nodes, members)
}

fn number(member: &Member) -> u64 {
    member.generation().map_or(0, |generation| generation.number)
}

fn the_second_launcher_goes_on_alone(etcd: &Path) {
    let etcd = Etcd::start(etcd);
    let ([first, second], [gone, mut left]) = begun(&arbiter(&etcd));
    // The remaining member is half of the generation without the lowest rank: a majority would not go on.
    drop(gone);
    drop(first);
    let group = left.next_group(Some("the first launcher has died")).unwrap();
    assert_eq!((group.world_size(), number(&left)), (1, 2));
    drop((group, left, second));
}

fn an_etcd_that_is_away_is_waited_for(program: &Path) {
    let mut etcd = Etcd::start(program);
    let ([first, _second], members) = begun(&arbiter(&etcd));
    etcd.kill();
    std::thread::scope(|scope| {
        let forming = members.map(|mut member| {
            scope.spawn(move || {
                let group = member.next_group(Some("etcd is away")).unwrap();
                (group.world_size(), number(&member))
            })
        });
        first.wait("warning", |event| match event {
            CoordinatorEvent::Warning { text } => {
                assert!(text.contains("etcd") && text.contains("does not answer"), "{text}");
                Some(())
            }
            _ => None,
        });
        etcd.start_again();
        assert_eq!(forming.map(|forming| forming.join().unwrap()), [(2, 2), (2, 2)]);
    });
}

fn an_etcd_that_starts_late_is_waited_for(program: &Path) {
    let mut etcd = Etcd::start(program);
    etcd.kill();
    let (arbiter, master) = (arbiter(&etcd), free_port().port());
    let first = node(master, 0, &arbiter);
    let text = first.wait("warning", warning);
    assert!(text.contains("does not answer") && text.contains("trying again for up to 30s"), "{text}");
    etcd.start_again();
    let second = node(master, 1, &arbiter);
    let mut members = [first.member(0), second.member(1)];
    std::thread::scope(|scope| {
        let forming = members.each_mut().map(|member| scope.spawn(|| member.next_group(None).unwrap()));
        let groups = forming.map(|forming| forming.join().unwrap());
        assert!(groups.iter().all(|group| group.world_size() == 2));
    });
}

/// A worker that asks for its job learns the reason as soon as the launcher gives up.
fn an_etcd_that_never_starts_is_named(_program: &Path) {
    let arbiter = Arbiter::parse(&format!("etcd://{}", free_port())).unwrap();
    let config =
        NodeConfig { start_timeout: Duration::from_secs(2), ..config(free_port().port(), 0, &arbiter) };
    let (coordinator, events) = Coordinator::multi_node(config, 1, POLICY, &Options::default()).unwrap();
    let first = Node { coordinator, events };
    let reason = first.wait("end", |event| match event {
        CoordinatorEvent::Detached { reason, .. } => Some(reason),
        _ => None,
    });
    assert!(reason.contains("cannot begin") && reason.contains("does not answer"), "{reason}");
    let error = first.member(0).job_id().unwrap_err().to_string();
    assert!(error.contains("does not answer"), "{error}");
}

fn warning(event: CoordinatorEvent) -> Option<String> {
    match event {
        CoordinatorEvent::Warning { text } => Some(text),
        _ => None,
    }
}

fn a_launcher_with_another_etcd_is_refused(program: &Path) {
    let (one, other) = (Etcd::start(program), Etcd::start(program));
    let master = free_port().port();
    let first = node(master, 0, &arbiter(&one));
    let second = node(master, 1, &arbiter(&other));
    let reason = second.wait("refusal", |event| match event {
        CoordinatorEvent::Detached { reason, .. } => Some(reason),
        _ => None,
    });
    assert!(reason.contains("--arbiter etcd://") && reason.contains("give all nodes the same"), "{reason}");
    drop(first);
}
