//! A job of several launchers, each with a coordinator for its own workers: it outlives any of them, the first included.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use kolo_comm::{Op, Options};
use kolo_elastic::{Coordinator, Member, Nodes, Order, Rules, member_name};

const RULES: Rules = Rules {
    min: 1,
    start: Duration::from_secs(60),
    patience: Duration::from_secs(60),
    wait: Duration::from_secs(60),
};
/// Longer than anything takes on the busiest machine; only a hang gets there.
const HANG: Duration = Duration::from_secs(120);

/// Places at which nobody listened a moment ago.
fn masters(count: usize) -> Vec<(String, u16)> {
    let free: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    free.iter().map(|free| ("127.0.0.1".into(), free.local_addr().unwrap().port())).collect()
}

/// A launcher with one worker, which is a thread.
struct Launcher<'scope> {
    coordinator: Coordinator,
    orders: Receiver<Order>,
    worker: ScopedJoinHandle<'scope, Vec<(u64, usize)>>,
}

/// What ends the workers.
struct Ends {
    done: AtomicBool,
    killed: [AtomicBool; 4],
}

impl Ends {
    fn new() -> Ends {
        Ends { done: AtomicBool::new(false), killed: [const { AtomicBool::new(false) }; 4] }
    }
}

/// Starts a launcher, which is to become node `node`, and its worker.
fn launch<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    ends: &'env Ends,
    nodes: Nodes,
    node: usize,
) -> Launcher<'scope> {
    let (coordinator, orders) = Coordinator::among(nodes, 1, RULES, &Options::default()).unwrap();
    assert_eq!(place(&coordinator).0, node);
    let (name, address) = (member_name(node, 0, 0), coordinator.address());
    coordinator.expect(&name);
    let worker = scope.spawn(move || {
        let mut member = Member::new(address, &name, &Options::default()).unwrap();
        work(&mut member, &ends.killed[node], &ends.done)
    });
    Launcher { coordinator, orders, worker }
}

/// A worker's life: the generations and sizes of the groups it has been in.
fn work(member: &mut Member, killed: &AtomicBool, done: &AtomicBool) -> Vec<(u64, usize)> {
    let mut group = member.join(None).unwrap();
    let mut seen = vec![(member.generation(), group.world_size())];
    let until = Instant::now() + HANG;
    while Instant::now() < until {
        if killed.load(Ordering::SeqCst) {
            group.abandon("it was killed");
            return seen;
        }
        let flag = |set: bool| f32::from(u8::from(set));
        let mut data = [1.0, flag(member.change_wanted()), flag(done.load(Ordering::SeqCst))];
        let reason = match group.all_reduce(&mut data, Op::Sum) {
            Ok(()) if data[2] > 0.0 => return seen,
            Ok(()) if data[1] > 0.0 => "others come".to_string(),
            Ok(()) => {
                assert_eq!(data[0], group.world_size() as f32);
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            Err(error) => error.to_string(),
        };
        group = member.join(Some(&reason)).unwrap();
        seen.push((member.generation(), group.world_size()));
    }
    panic!("a worker has worked for ever; it has seen {seen:?}");
}

impl Launcher<'_> {
    /// Waits for a generation of these nodes; gives its number.
    fn formed(&self, nodes: &[usize]) -> u64 {
        let names: Vec<String> = nodes.iter().map(|node| member_name(*node, 0, 0)).collect();
        let until = Instant::now() + HANG;
        while let Ok(order) = self.orders.recv_timeout(until.saturating_duration_since(Instant::now())) {
            match order {
                Order::Formed { generation, members, .. } if members == names => return generation,
                Order::Formed { .. } => {}
                other => panic!("{other:?} instead of a generation of {names:?}"),
            }
        }
        panic!("no generation of {names:?}");
    }

    /// Ends it as `kill -9` does: worker and connections at once, without a word.
    fn kill(self, node: usize, ends: &Ends) -> Vec<(u64, usize)> {
        ends.killed[node].store(true, Ordering::SeqCst);
        let seen = self.worker.join().unwrap();
        drop(self.coordinator);
        seen
    }
}

#[test]
fn a_job_outlives_its_launchers_the_first_included() {
    let (ends, masters) = (Ends::new(), masters(1));
    let nodes = |node| Nodes { masters: masters.clone(), node: Some(node), min: 3, max: 3, workers: 1 };
    std::thread::scope(|scope| {
        // All at once, for none begins without the others.
        let starting: Vec<_> = (0..3)
            .map(|node| {
                let (ends, nodes) = (&ends, nodes(node));
                scope.spawn(move || launch(scope, ends, nodes, node))
            })
            .collect();
        let mut launchers = starting.into_iter().map(|starting| starting.join().unwrap());
        let [first, second, third] = std::array::from_fn(|_| launchers.next().unwrap());
        for launcher in [&first, &second, &third] {
            // Others may have come in another order.
            let members = launcher.orders.recv_timeout(HANG).unwrap();
            assert!(
                matches!(&members, Order::Formed { generation: 1, members, .. } if members.len() == 3),
                "{members:?}"
            );
        }
        assert_eq!(first.kill(0, &ends), [(1, 3)]);
        let pair = second.orders.recv_timeout(HANG).unwrap();
        assert!(matches!(&pair, Order::Formed { members, .. } if members.len() == 2), "{pair:?}");
        second.kill(1, &ends);
        third.formed(&[2]);
        ends.done.store(true, Ordering::SeqCst);
        let sizes: Vec<usize> = third.worker.join().unwrap().iter().map(|(_, size)| *size).collect();
        assert_eq!(sizes, [3, 2, 1]);
    });
}

#[test]
fn launchers_come_late_and_find_the_living() {
    let (ends, masters) = (Ends::new(), masters(2));
    let nodes = || Nodes { masters: masters.clone(), node: None, min: 1, max: 2, workers: 1 };
    std::thread::scope(|scope| {
        let first = launch(scope, &ends, nodes(), 0);
        first.formed(&[0]);
        let second = launch(scope, &ends, nodes(), 1);
        first.formed(&[0, 1]);
        first.kill(0, &ends);
        second.formed(&[1]);
        ends.killed[0].store(false, Ordering::SeqCst);
        let third = launch(scope, &ends, nodes(), 0);
        let last = second.formed(&[1, 0]);
        ends.done.store(true, Ordering::SeqCst);
        assert_eq!(third.worker.join().unwrap(), [(last, 2)]);
        assert_eq!(second.worker.join().unwrap().last(), Some(&(last, 2)));
    });
}

#[test]
fn whoever_is_one_too_many_is_told_why() {
    let masters = masters(1);
    let nodes = |node| Nodes { masters: masters.clone(), node: Some(node), min: 1, max: 2, workers: 1 };
    let start = |node| Coordinator::among(nodes(node), 1, RULES, &Options::default()).unwrap();
    let (first, _orders) = start(0);
    place(&first);
    let (twice, orders) = start(0);
    let Ok(Order::Lost { why }) = orders.recv_timeout(HANG) else { panic!("a second node 0 is let in") };
    assert!(why.contains("node 0") && why.contains("--node-rank"), "{why}");
    // Its own workers do not wait for ever either.
    let mut member = Member::new(twice.address(), "node0/0.0", &Options::default()).unwrap();
    let error = member.join(None).map(drop).unwrap_err().to_string();
    assert!(error.contains("node 0"), "{error}");
}

#[test]
fn whoever_comes_when_the_work_is_done_begins_another_job() {
    let masters = masters(1);
    let start = || {
        let nodes = Nodes { masters: masters.clone(), node: None, min: 1, max: 2, workers: 1 };
        Coordinator::among(nodes, 1, RULES, &Options::default()).unwrap()
    };
    let (first, _first_orders) = start();
    assert_eq!(place(&first), (0, 1));
    first.done();
    let (second, _second_orders) = start();
    drop(first);
    assert_eq!(place(&second), (0, 1), "the first of its own");
}

/// A launcher's number and the number of nodes, once the job has begun.
fn place(coordinator: &Coordinator) -> (usize, usize) {
    let until = Instant::now() + HANG;
    loop {
        if let Some(place) = coordinator.place() {
            return place;
        }
        assert!(Instant::now() < until, "no job is found");
        std::thread::sleep(Duration::from_millis(5));
    }
}
