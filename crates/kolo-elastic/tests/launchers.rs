//! A job of several launchers, each with a coordinator for its workers: it survives the loss of any, even
//! the first.

use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use kolo_comm::{JobMembership, Op, Options};
use kolo_elastic::{
    Arbiter, Coordinator, CoordinatorEvent, Member, MembershipPolicy, NodeConfig, member_name,
};

const POLICY: MembershipPolicy = MembershipPolicy {
    min_members: 1,
    start_timeout: Duration::from_secs(60),
    rejoin_timeout: Duration::from_secs(60),
    too_few_timeout: Duration::from_secs(60),
};
/// Exceeded only by a hang, even on the busiest machine.
const HANG: Duration = Duration::from_secs(120);

/// Places at which no process listened a moment ago.
fn masters(count: usize) -> Vec<(String, u16)> {
    let free: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    free.iter().map(|free| ("127.0.0.1".into(), free.local_addr().unwrap().port())).collect()
}

/// Configuration of one of so many nodes of a job that begins at these places; each node has one worker.
fn node_config(
    masters: &[(String, u16)],
    node_rank: Option<usize>,
    nodes: RangeInclusive<usize>,
) -> NodeConfig {
    let (min_nodes, max_nodes) = nodes.into_inner();
    NodeConfig {
        masters: masters.to_vec(),
        node_rank,
        min_nodes,
        max_nodes,
        local_workers: 1,
        start_timeout: POLICY.start_timeout,
        arbiter: Arbiter::default(),
    }
}

/// A launcher with one worker, which is a thread.
struct Launcher<'scope> {
    coordinator: Coordinator,
    events: Receiver<CoordinatorEvent>,
    worker: ScopedJoinHandle<'scope, Vec<(u64, usize)>>,
}

struct Ends {
    done: AtomicBool,
    killed: [AtomicBool; 4],
}

impl Ends {
    fn new() -> Ends {
        Ends { done: AtomicBool::new(false), killed: [const { AtomicBool::new(false) }; 4] }
    }
}

fn number(member: &Member) -> u64 {
    member.generation().map_or(0, |generation| generation.number)
}

/// Starts a launcher, which must become node `node`, and its worker.
fn launch<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    ends: &'env Ends,
    config: NodeConfig,
    node: usize,
) -> Launcher<'scope> {
    let (coordinator, events) = Coordinator::multi_node(config, 1, POLICY, &Options::default()).unwrap();
    assert_eq!(rank_and_count(&coordinator).0, node);
    let (name, address) = (member_name(node, 0, 0), coordinator.address());
    coordinator.member_started(&name);
    let worker = scope.spawn(move || {
        let mut member = Member::connect(address, &name, &Options::default()).unwrap();
        work(&mut member, &ends.killed[node], &ends.done)
    });
    Launcher { coordinator, events, worker }
}

/// Runs a worker. Returns the generations and sizes of its groups.
fn work(member: &mut Member, killed: &AtomicBool, done: &AtomicBool) -> Vec<(u64, usize)> {
    let mut group = member.next_group(None).unwrap();
    let mut seen = vec![(number(member), group.world_size())];
    let until = Instant::now() + HANG;
    while Instant::now() < until {
        if killed.load(Ordering::SeqCst) {
            group.abandon("it was killed");
            return seen;
        }
        let flag = |set: bool| f32::from(u8::from(set));
        let mut data = [1.0, flag(member.is_change_wanted()), flag(done.load(Ordering::SeqCst))];
        let reason = match group.all_reduce(&mut data, Op::Sum) {
            Ok(()) if data[2] > 0.0 => return seen,
            Ok(()) if data[1] > 0.0 => "others come".to_string(),
            Ok(()) => {
                assert_eq!(data[0], group.world_size() as f32);
                continue;
            }
            Err(error) => error.to_string(),
        };
        group = member.next_group(Some(&reason)).unwrap();
        seen.push((number(member), group.world_size()));
    }
    panic!("a worker has worked for ever; it has seen {seen:?}");
}

impl Launcher<'_> {
    /// Waits for a generation of these nodes; returns its number.
    fn formed(&self, nodes: &[usize]) -> u64 {
        let names: Vec<String> = nodes.iter().map(|node| member_name(*node, 0, 0)).collect();
        let until = Instant::now() + HANG;
        while let Ok(event) = self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            match event {
                CoordinatorEvent::GenerationFormed { generation, members, .. } if members == names => {
                    return generation;
                }
                CoordinatorEvent::GenerationFormed { .. }
                | CoordinatorEvent::Joined { .. }
                | CoordinatorEvent::Warning { .. } => {}
                other => panic!("{other:?} instead of a generation of {names:?}"),
            }
        }
        panic!("no generation of {names:?}");
    }

    fn next_generation(&self) -> (u64, usize) {
        loop {
            match self.events.recv_timeout(HANG).unwrap() {
                CoordinatorEvent::GenerationFormed { generation, members, .. } => {
                    return (generation, members.len());
                }
                // On a busy machine a wait may be long enough for a warning.
                CoordinatorEvent::Joined { .. } | CoordinatorEvent::Warning { .. } => {}
                other => panic!("{other:?} instead of a generation"),
            }
        }
    }

    /// Ends the launcher as `kill -9` does: worker and connections at once, without a goodbye.
    fn kill(self, node: usize, ends: &Ends) -> Vec<(u64, usize)> {
        ends.killed[node].store(true, Ordering::SeqCst);
        let seen = self.worker.join().unwrap();
        drop(self.coordinator);
        seen
    }
}

#[test]
fn a_job_outlives_its_launchers_even_the_first() {
    let (ends, masters) = (Ends::new(), masters(1));
    let config = |rank| node_config(&masters, Some(rank), 3..=3);
    std::thread::scope(|scope| {
        // All at once, because none begins without the others.
        let starting: Vec<_> = (0..3)
            .map(|node| {
                let (ends, config) = (&ends, config(node));
                scope.spawn(move || launch(scope, ends, config, node))
            })
            .collect();
        let mut launchers = starting.into_iter().map(|starting| starting.join().unwrap());
        let [first, second, third] = std::array::from_fn(|_| launchers.next().unwrap());
        for launcher in [&first, &second, &third] {
            // The launchers may have joined in another order.
            assert_eq!(launcher.next_generation(), (1, 3));
        }
        assert_eq!(first.kill(0, &ends), [(1, 3)]);
        assert_eq!(second.next_generation().1, 2);
        second.kill(1, &ends);
        third.formed(&[2]);
        ends.done.store(true, Ordering::SeqCst);
        let sizes: Vec<usize> = third.worker.join().unwrap().iter().map(|(_, size)| *size).collect();
        assert_eq!(sizes, [3, 2, 1]);
    });
}

#[test]
fn late_launchers_find_the_live_ones() {
    let (ends, masters) = (Ends::new(), masters(2));
    let config = || node_config(&masters, None, 1..=2);
    std::thread::scope(|scope| {
        let first = launch(scope, &ends, config(), 0);
        first.formed(&[0]);
        let second = launch(scope, &ends, config(), 1);
        first.formed(&[0, 1]);
        first.kill(0, &ends);
        second.formed(&[1]);
        ends.killed[0].store(false, Ordering::SeqCst);
        let third = launch(scope, &ends, config(), 0);
        let last = second.formed(&[1, 0]);
        ends.done.store(true, Ordering::SeqCst);
        assert_eq!(third.worker.join().unwrap(), [(last, 2)]);
        assert_eq!(second.worker.join().unwrap().last(), Some(&(last, 2)));
    });
}

#[test]
fn a_surplus_launcher_gets_the_reason() {
    let masters = masters(1);
    let config = node_config(&masters, Some(0), 1..=2);
    let start = |config| Coordinator::multi_node(config, 1, POLICY, &Options::default()).unwrap();
    let (first, _events) = start(config.clone());
    rank_and_count(&first);
    let (twice, events) = start(NodeConfig { start_timeout: Duration::from_secs(2), ..config });
    // The launcher reports the refusal at once, and again when it is final.
    let Ok(CoordinatorEvent::Warning { text }) = events.recv_timeout(HANG) else {
        panic!("a refusal is not told")
    };
    assert!(text.contains("node 0") && text.contains("trying again for up to 30s"), "{text}");
    let Ok(CoordinatorEvent::Detached { reason, .. }) = events.recv_timeout(HANG) else {
        panic!("a second node 0 is let in")
    };
    assert!(reason.contains("node 0") && reason.contains("--node-rank"), "{reason}");
    // Its own workers do not wait forever either, for their job or for others.
    let mut member = Member::connect(twice.address(), "node0/0.0", &Options::default()).unwrap();
    let error = member.job_id().unwrap_err().to_string();
    assert!(error.contains("node 0") && error.contains("--node-rank"), "{error}");
    let error = member.next_group(None).map(drop).unwrap_err().to_string();
    assert!(error.contains("node 0"), "{error}");
}

/// The leader may not have noticed yet that the launcher before is lost.
#[test]
fn a_replacement_joins_when_the_place_of_a_lost_launcher_is_free() {
    let masters = masters(1);
    let start = |rank| {
        let config = node_config(&masters, Some(rank), 1..=2);
        Coordinator::multi_node(config, 1, POLICY, &Options::default()).unwrap()
    };
    let (first, _first_events) = start(0);
    assert_eq!(rank_and_count(&first).0, 0);
    let (lost, _lost_events) = start(1);
    assert_eq!(rank_and_count(&lost).0, 1);
    let (next, events) = start(1);
    let Ok(CoordinatorEvent::Warning { text }) = events.recv_timeout(HANG) else { panic!("it is let in") };
    assert!(text.contains("has a node 1 already") || text.contains("all that it may have"), "{text}");
    drop(lost);
    assert_eq!(rank_and_count(&next).0, 1);
}

#[test]
fn a_launcher_that_comes_after_the_work_begins_another_job() {
    let masters = masters(1);
    let start = || {
        let config = node_config(&masters, None, 1..=2);
        Coordinator::multi_node(config, 1, POLICY, &Options::default()).unwrap()
    };
    let (first, _first_events) = start();
    assert_eq!(rank_and_count(&first), (0, 1));
    first.work_done();
    let (second, _second_events) = start();
    drop(first);
    assert_eq!(rank_and_count(&second), (0, 1), "the first of its own");
}

/// Returns a launcher's node rank and the number of nodes, once the job has begun.
fn rank_and_count(coordinator: &Coordinator) -> (usize, usize) {
    let until = Instant::now() + HANG;
    loop {
        if let Some(found) = coordinator.node_rank_and_count() {
            return found;
        }
        assert!(Instant::now() < until, "no job is found");
        std::thread::sleep(Duration::from_millis(5));
    }
}
