//! A job whose workers come, leave and die, over a coordinator.

use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use kolo_comm::{Error, Group, Op, Options, Rank};
use kolo_elastic::{Coordinator, Departure, Member, Order, Rules};

const RULES: Rules = Rules {
    min: 2,
    start: Duration::from_secs(60),
    patience: Duration::from_secs(60),
    wait: Duration::from_millis(300),
};

fn coordinator() -> (Coordinator, Receiver<Order>) {
    with_rules(RULES)
}

fn with_rules(rules: Rules) -> (Coordinator, Receiver<Order>) {
    Coordinator::start((Ipv4Addr::LOCALHOST, 0).into(), 8, rules, &Options::default()).unwrap()
}

/// What a worker does until it has seen enough.
struct Work<'a> {
    coordinator: &'a Coordinator,
    name: String,
    /// Dies in this generation.
    dies: Option<u64>,
    /// Ends its work in this generation.
    ends: u64,
}

impl Work<'_> {
    /// The generations and sizes of the groups it has been in.
    fn run(self) -> Vec<(u64, usize)> {
        let mut member = Member::new(self.coordinator.address(), &self.name, &Options::default()).unwrap();
        let mut seen = Vec::new();
        let mut group = member.join(None).unwrap();
        loop {
            seen.push((member.generation(), group.world_size()));
            match self.train(&mut member, &group) {
                Ok(true) => return seen,
                Ok(false) => {}
                Err(error) => assert_eq!(error.culprit(), Some(Rank(0)), "{error}"),
            }
            // The old group is dropped when the new one is there.
            group = member.join(Some("a test")).unwrap();
        }
    }

    /// Whether the work is done; if not, others wait to come in.
    fn train(&self, member: &mut Member, group: &Group) -> Result<bool, Error> {
        for step in 0..2000 {
            if self.dies == Some(member.generation()) && step == 3 {
                group.abandon("it was killed");
                self.coordinator.gone(&self.name, &Departure::Failed("was killed by a test".into()));
                return Ok(true);
            }
            let mut data = [1.0f32, f32::from(u8::from(member.change_wanted()))];
            group.all_reduce(&mut data, Op::Sum)?;
            assert_eq!(data[0], group.world_size() as f32);
            if data[1] > 0.0 {
                return Ok(false);
            }
            if self.ends == member.generation() && step == 10 {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{} has worked for ever in generation {}", self.name, member.generation());
    }
}

#[test]
fn a_job_outlives_its_workers() {
    let (coordinator, orders) = coordinator();
    let seen = Mutex::new(Vec::new());
    let work = |name: &str, dies| Work { coordinator: &coordinator, name: name.into(), dies, ends: 3 };
    (0..4).for_each(|n| coordinator.expect(&format!("here/{n}")));
    std::thread::scope(|scope| {
        let start = |work: Work<'_>| {
            let (name, generations) = (work.name.clone(), work.run());
            seen.lock().unwrap().push((name, generations));
        };
        for n in 0..4 {
            scope.spawn(move || start(work(&format!("here/{n}"), (n == 0).then_some(1))));
        }
        // The replacement comes once the others go on without the dead one.
        let second = orders.iter().find(|order| matches!(order, Order::Formed { generation: 2, .. }));
        let Some(Order::Formed { members, reason, .. }) = second else { panic!("{second:?}") };
        assert_eq!(members, ["here/1", "here/2", "here/3"]);
        assert!(reason.contains("here/0") && reason.contains("killed by a test"), "{reason}");
        coordinator.expect("there/0");
        scope.spawn(move || start(work("there/0", None)));
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort();
    let survivor = vec![(1, 4), (2, 3), (3, 4)];
    let expected = [vec![(1, 4)], survivor.clone(), survivor.clone(), survivor, vec![(3, 4)]];
    assert_eq!(seen.iter().map(|(_, generations)| generations.clone()).collect::<Vec<_>>(), expected);
}

#[test]
fn too_few_are_told_so() {
    let (coordinator, orders) = coordinator();
    coordinator.expect("here/0");
    coordinator.expect("here/1");
    std::thread::scope(|scope| {
        let join = |name: &'static str| {
            let mut member = Member::new(coordinator.address(), name, &Options::default()).unwrap();
            (member.join(None).unwrap(), member)
        };
        let first = scope.spawn(move || join("here/0"));
        let (group, mut member) = join("here/1");
        first.join().unwrap().0.abandon("it was killed");
        coordinator.gone("here/0", &Departure::Failed("was killed by a test".into()));
        assert!(group.barrier().is_err());
        let error = member.join(Some("rank 0 died")).map(drop).unwrap_err();
        assert!(matches!(error, Error::TooFew { present: 1, min: 2, first: true, .. }), "{error}");
        assert!(orders.iter().any(|order| order == Order::TooFew { present: 1 }));
    });
}

/// A worker whose thread hangs after ten steps, until `released`; or one that goes on without it then.
fn ten_steps(coordinator: &Coordinator, name: &str, released: Option<Receiver<()>>) {
    let options = Options { timeout: Some(Duration::from_secs(3)), ..Options::default() };
    let mut member = Member::new(coordinator.address(), name, &options).unwrap();
    let group = member.join(None).unwrap();
    for _ in 0..10 {
        group.barrier().unwrap();
        member.step_done();
    }
    if let Some(released) = released {
        // An error is the end of the test.
        let _ = released.recv();
        return;
    }
    let error = group.barrier().unwrap_err();
    assert!(matches!(error, Error::Timeout { rank: Rank(0), .. }), "{error}");
    let without = member.join(Some(&error.to_string())).unwrap();
    assert_eq!(without.world_size(), 2);
    without.barrier().unwrap();
}

#[test]
fn who_hangs_is_found_by_the_pace_of_the_others() {
    // What nobody has told would take an hour.
    let (coordinator, orders) = with_rules(Rules { patience: Duration::from_secs(3600), ..RULES });
    let coordinator = &coordinator;
    (0..3).for_each(|n| coordinator.expect(&format!("here/{n}")));
    std::thread::scope(|scope| {
        let (release, released) = mpsc::channel();
        scope.spawn(move || ten_steps(coordinator, "here/0", Some(released)));
        for name in ["here/1", "here/2"] {
            scope.spawn(move || ten_steps(coordinator, name, None));
        }
        let next = || orders.recv_timeout(Duration::from_secs(120)).unwrap();
        let evicted = std::iter::repeat_with(next).find_map(|order| match order {
            Order::Evict { member } => Some(member),
            _ => None,
        });
        assert_eq!(evicted.as_deref(), Some("here/0"));
        drop(release);
    });
}
