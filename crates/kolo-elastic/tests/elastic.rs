//! A job whose workers come, leave and die, over a coordinator.

use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use kolo_comm::{Error, Group, JobMembership, Op, Options, Rank};
use kolo_elastic::{Coordinator, CoordinatorEvent, Member, MemberExit, MembershipPolicy};
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Store;

const POLICY: MembershipPolicy = MembershipPolicy {
    min_members: 2,
    start_timeout: Duration::from_secs(60),
    rejoin_timeout: Duration::from_secs(60),
    too_few_timeout: Duration::from_millis(300),
};

/// Exceeded only by a hang, even on the busiest machine.
const HANG: Duration = Duration::from_secs(120);

fn coordinator() -> (Coordinator, Receiver<CoordinatorEvent>) {
    with_policy(POLICY)
}

fn with_policy(policy: MembershipPolicy) -> (Coordinator, Receiver<CoordinatorEvent>) {
    Coordinator::single_node((Ipv4Addr::LOCALHOST, 0).into(), 8, policy, &Options::default()).unwrap()
}

fn number(member: &Member) -> u64 {
    member.generation().map_or(0, |generation| generation.number)
}

struct Work<'a> {
    coordinator: &'a Coordinator,
    name: String,
    dies: Option<u64>,
    ends: u64,
}

impl Work<'_> {
    /// Returns the generations and sizes of the worker's groups.
    fn run(self) -> Vec<(u64, usize)> {
        let mut member =
            Member::connect(self.coordinator.address(), &self.name, &Options::default()).unwrap();
        let mut seen = Vec::new();
        let mut group = member.next_group(None).unwrap();
        loop {
            seen.push((number(&member), group.world_size()));
            match self.train(&member, &group) {
                Ok(true) => return seen,
                Ok(false) => {}
                Err(error) => assert_eq!(error.culprit(), Some(Rank(0)), "{error}"),
            }
            // This drops the old group only when the new one exists.
            group = member.next_group(Some("a test")).unwrap();
        }
    }

    /// Returns true if the work is done, and false if other workers wait to join.
    fn train(&self, member: &Member, group: &Group) -> Result<bool, Error> {
        let (generation, until) = (number(member), Instant::now() + HANG);
        for step in 0.. {
            if self.dies == Some(generation) && step == 3 {
                group.abandon("it was killed");
                let exit = MemberExit::Failed("was killed by a test".into());
                self.coordinator.member_exited(&self.name, &exit);
                return Ok(true);
            }
            let mut data = [1.0f32, f32::from(u8::from(member.is_change_wanted()))];
            group.all_reduce(&mut data, Op::Sum)?;
            assert_eq!(data[0], group.world_size() as f32);
            if data[1] > 0.0 {
                return Ok(false);
            }
            if self.ends == generation && step == 10 {
                return Ok(true);
            }
            assert!(Instant::now() < until, "{} has worked for ever in generation {generation}", self.name);
        }
        unreachable!("steps do not end by themselves");
    }
}

#[test]
fn a_job_outlives_its_workers() {
    let (coordinator, events) = coordinator();
    let seen = Mutex::new(Vec::new());
    let work = |name: &str, dies| Work { coordinator: &coordinator, name: name.into(), dies, ends: 3 };
    (0..4).for_each(|n| coordinator.member_started(&format!("here/{n}")));
    std::thread::scope(|scope| {
        let start = |work: Work<'_>| {
            let (name, generations) = (work.name.clone(), work.run());
            seen.lock().unwrap().push((name, generations));
        };
        for n in 0..4 {
            scope.spawn(move || start(work(&format!("here/{n}"), (n == 0).then_some(1))));
        }
        // The replacement joins once the others go on without the dead worker.
        let second = events
            .iter()
            .find(|event| matches!(event, CoordinatorEvent::GenerationFormed { generation: 2, .. }));
        let Some(CoordinatorEvent::GenerationFormed { members, reason, .. }) = second else {
            panic!("{second:?}")
        };
        assert_eq!(members, ["here/1", "here/2", "here/3"]);
        assert!(reason.contains("here/0") && reason.contains("killed by a test"), "{reason}");
        coordinator.member_started("there/0");
        scope.spawn(move || start(work("there/0", None)));
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort();
    let survivor = vec![(1, 4), (2, 3), (3, 4)];
    let expected = [vec![(1, 4)], survivor.clone(), survivor.clone(), survivor, vec![(3, 4)]];
    assert_eq!(seen.iter().map(|(_, generations)| generations.clone()).collect::<Vec<_>>(), expected);
}

/// After deaths too few members are left. Those form one group after another, as long as they die.
#[test]
fn too_few_members_form_a_last_group() {
    let (coordinator, events) = with_policy(MembershipPolicy { min_members: 3, ..POLICY });
    let names = ["here/0", "here/1", "here/2"];
    names.iter().for_each(|name| coordinator.member_started(name));
    let fails = |name| {
        let how = MemberExit::Failed("was killed by a test".into());
        coordinator.member_exited(name, &how);
    };
    let meetings = [3, 2, 1].map(Barrier::new);
    let live = |lives: usize| {
        let name = names[lives];
        let mut member = Member::connect(coordinator.address(), name, &Options::default()).unwrap();
        let mut seen = Vec::new();
        for (deaths, meeting) in meetings.iter().enumerate().take(lives + 1) {
            let group = member.next_group((deaths > 0).then_some("a rank died")).unwrap();
            let mut sum = [1];
            group.all_reduce(&mut sum, Op::Sum).unwrap();
            seen.push((sum[0], member.too_few().is_some()));
            member.set_has_state();
            meeting.wait();
            if deaths == lives {
                group.abandon("it was killed");
                fails(name);
            } else {
                assert!(group.barrier().is_err());
            }
        }
        (seen, member.too_few())
    };
    let live = &live;
    let seen: Vec<_> = std::thread::scope(|scope| {
        let lives: Vec<_> = (0..3).map(|lives| scope.spawn(move || live(lives))).collect();
        lives.into_iter().map(|life| life.join().unwrap()).collect()
    });
    let expected = [(3, false), (2, true), (1, true)];
    for (lives, (seen, _)) in seen.iter().enumerate() {
        assert_eq!(seen, &expected[..=lives]);
    }
    let last = seen[2].1.as_ref();
    assert!(matches!(last, Some(Error::TooFew { present: 1, min: 3, is_last_group: true, .. })), "{last:?}");
    let told: Vec<_> = events.try_iter().collect();
    for present in [2, 1] {
        assert!(told.contains(&CoordinatorEvent::TooFewMembers { present }), "{told:?}");
    }
}

/// Runs a worker for ten steps. Then its thread hangs until `released`, or goes on without the hung worker.
fn ten_steps(coordinator: &Coordinator, name: &str, released: Option<Receiver<()>>) {
    let options = Options { timeout: Some(Duration::from_secs(3)), ..Options::default() };
    let mut member = Member::connect(coordinator.address(), name, &options).unwrap();
    let group = member.next_group(None).unwrap();
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
    let without = member.next_group(Some(&error.to_string())).unwrap();
    assert_eq!(without.world_size(), 2);
    without.barrier().unwrap();
}

#[test]
fn the_pace_of_the_others_reveals_a_hang() {
    // Without a suggestion from the members, the eviction would take an hour.
    let (coordinator, events) =
        with_policy(MembershipPolicy { rejoin_timeout: Duration::from_secs(3600), ..POLICY });
    let coordinator = &coordinator;
    (0..3).for_each(|n| coordinator.member_started(&format!("here/{n}")));
    std::thread::scope(|scope| {
        let (release, released) = mpsc::channel();
        scope.spawn(move || ten_steps(coordinator, "here/0", Some(released)));
        for name in ["here/1", "here/2"] {
            scope.spawn(move || ten_steps(coordinator, name, None));
        }
        let next = || events.recv_timeout(HANG).unwrap();
        let evicted = std::iter::repeat_with(next).find_map(|event| match event {
            CoordinatorEvent::MemberHung { member, .. } => Some(member),
            _ => None,
        });
        assert_eq!(evicted.as_deref(), Some("here/0"));
        drop(release);
    });
}

#[test]
fn an_unreadable_arrival_is_reported_to_the_launcher() {
    let (coordinator, events) = coordinator();
    coordinator.member_started("a");
    let access = Access::new(None, false).unwrap();
    let mut store = Store::connect(coordinator.address(), &access, HANG).unwrap();
    store.set("arrival/a", "of another version".into()).unwrap();
    let Ok(CoordinatorEvent::Warning { text }) = events.recv_timeout(HANG) else { panic!("nothing is told") };
    assert!(text.contains("worker a ") && text.contains("the same version"), "{text}");
}

/// Forwards connections to another address, until they are cut.
struct Relay {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn to(address: SocketAddr) -> Relay {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay { address: listener.local_addr().unwrap(), open: Arc::default() };
        let open = relay.open.clone();
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(address).unwrap());
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                }
                open.lock().unwrap().extend([near, far]);
            }
        });
        relay
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            // Its other end may already be closed.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_member_reconnects_when_its_connection_breaks() {
    let (coordinator, _events) = coordinator();
    let relay = Relay::to(coordinator.address());
    let names = ["node0/0.0", "node0/1.0"];
    names.iter().for_each(|name| coordinator.member_started(name));
    std::thread::scope(|scope| {
        let works = |name: &'static str, address: SocketAddr| {
            let relay = &relay;
            move || {
                let mut member = Member::connect(address, name, &Options::default()).unwrap();
                let mut reason = None;
                for generation in 1..=4 {
                    let group = member.next_group(reason).unwrap();
                    assert_eq!((number(&member), group.world_size()), (generation, 2));
                    group.barrier().unwrap();
                    // The first two are cut before the member arrives, the third while it waits.
                    if address == relay.address {
                        relay.cut();
                    } else if generation == 3 {
                        std::thread::sleep(Duration::from_secs(1));
                        relay.cut();
                    }
                    reason = Some("on purpose");
                }
            }
        };
        scope.spawn(works(names[0], coordinator.address()));
        scope.spawn(works(names[1], relay.address));
    });
}
