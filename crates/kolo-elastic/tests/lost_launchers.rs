//! Three launchers, each a process with one worker in it. The leader is stopped and continued, or killed, or
//! one link between two hosts is cut; the others go on after a short wait.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use kolo_comm::{JobMembership, Op, Options};
use kolo_elastic::{
    Arbiter, Coordinator, CoordinatorEvent, Member, MembershipPolicy, NodeConfig, member_name,
};
use kolo_rendezvous::secure::Token;
use kolo_testing::harness::{run, test, test_where};
use kolo_testing::{Hosts, free_port};

/// Variable that makes this program a launcher of a test: node rank, host and port of the first master.
const LAUNCHER: &str = "KOLO_TEST_LAUNCHER";
const NODES: usize = 3;
/// Time within which the others must go on without a lost launcher, even on a busy machine.
const GOES_ON: Duration = Duration::from_secs(60);
/// Seconds after which a host that cannot be reached counts as gone.
const HOST_TIMEOUT: &str = "2";
/// Longer than a launcher that may not go on waits; exceeded only by a hang.
const HANG: Duration = Duration::from_secs(150);

fn main() -> ExitCode {
    if let Ok(text) = std::env::var(LAUNCHER) {
        launcher(&text);
        return ExitCode::SUCCESS;
    }
    run(vec![
        test("others_go_on_without_a_stopped_leader_which_is_superseded", a_stopped_leader),
        test("others_go_on_without_a_killed_leader", a_killed_leader),
        test_where("the_second_launcher_loses_its_link_to_the_leader", || a_cut_link(1)),
        test_where("the_third_launcher_loses_its_link_to_the_leader", || a_cut_link(2)),
    ])
}

/// Runs one launcher of three in a process of a test, and prints a line for each event.
fn launcher(text: &str) {
    let [node_rank, host, port] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    let node_rank = node_rank.parse().unwrap();
    let policy = MembershipPolicy {
        min_members: 1,
        start_timeout: Duration::from_secs(60),
        rejoin_timeout: Duration::from_secs(20),
        too_few_timeout: Duration::from_secs(60),
    };
    let config = NodeConfig {
        masters: vec![(host.into(), port.parse().unwrap())],
        node_rank: Some(node_rank),
        min_nodes: NODES,
        max_nodes: NODES,
        local_workers: 1,
        start_timeout: policy.start_timeout,
        arbiter: Arbiter::default(),
    };
    let token = Some(Token::new("of a test of lost launchers").unwrap());
    let options = Options { token, timeout: Some(Duration::from_secs(5)), ..Options::default() };
    let (coordinator, events) = Coordinator::multi_node(config, 1, policy, &options).unwrap();
    let (name, address) = (member_name(node_rank, 0, 0), coordinator.address());
    coordinator.member_started(&name);
    std::thread::spawn(move || work(Member::connect(address, &name, &options).unwrap()));
    for event in events {
        match event {
            CoordinatorEvent::GenerationFormed { generation, members, .. } => {
                println!("generation {generation}: {}", members.join(" "));
            }
            CoordinatorEvent::Detached { reason, .. } => return println!("detached: {reason}"),
            CoordinatorEvent::Superseded { reason } => return println!("superseded: {reason}"),
            other => println!("{other:?}"),
        }
    }
}

/// Runs a worker: it sums with the others, and forms the next group when that fails.
fn work(mut member: Member) {
    let mut reason = None;
    while let Ok(group) = member.next_group(reason.as_deref()) {
        reason = loop {
            let wanted = f32::from(u8::from(member.is_change_wanted()));
            let mut data = [wanted];
            match group.all_reduce(&mut data, Op::Sum) {
                Ok(()) if data[0] > 0.0 => break Some("others come or go".into()),
                Ok(()) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => break Some(error.to_string()),
            }
        };
    }
}

/// A launcher's process, and the lines that it prints.
struct Launcher {
    process: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Launcher {
    fn start(node_rank: usize, master: IpAddr, port: u16) -> Launcher {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(LAUNCHER, format!("{node_rank} {master} {port}")).env("KOLO_HOST_TIMEOUT", HOST_TIMEOUT);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let (out, (sender, lines)) = (process.stdout.take().unwrap(), mpsc::channel());
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Launcher { process, lines, seen: Vec::new() }
    }

    fn wait_for_line(&mut self, beginnings: &[&str], within: Duration) -> String {
        let until = Instant::now() + within;
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.seen.push(line.clone());
            if beginnings.iter().any(|beginning| line.starts_with(beginning)) {
                return line;
            }
        }
        panic!("no {beginnings:?} within {within:?}, but {:?}", self.seen);
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.process.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts three launchers, which join in the order of their numbers, and waits for their first generation.
fn begun(start: impl Fn(usize) -> Launcher) -> [Launcher; NODES] {
    let mut launchers = [start(0), start(1), start(2)];
    for launcher in &mut launchers {
        launcher.wait_for_line(&["generation 1: "], HANG);
    }
    launchers
}

fn on_loopback() -> [Launcher; NODES] {
    let master = free_port();
    begun(|node| {
        // The second launcher joins before the third.
        std::thread::sleep(Duration::from_millis(500 * node as u64));
        Launcher::start(node, master.ip(), master.port())
    })
}

/// Waits for the next generation of these two nodes.
fn go_on(launchers: &mut [Launcher; NODES], nodes: [usize; 2]) {
    let since = Instant::now();
    for node in nodes {
        let left = GOES_ON.saturating_sub(since.elapsed());
        let line = launchers[node].wait_for_line(&["generation "], left);
        let lives_there = |other: &usize| line.contains(&member_name(*other, 0, 0));
        assert!((0..NODES).all(|other| nodes.contains(&other) == lives_there(&other)), "{line}");
    }
    println!("{nodes:?} went on after {:.1} s", since.elapsed().as_secs_f64());
}

fn a_stopped_leader() {
    let mut launchers = on_loopback();
    launchers[0].signal("-STOP");
    go_on(&mut launchers, [1, 2]);
    launchers[0].signal("-CONT");
    let end = launchers[0].wait_for_line(&["superseded: ", "detached: "], HANG);
    assert!(end.starts_with("superseded: "), "{end}");
}

fn a_killed_leader() {
    let mut launchers = on_loopback();
    launchers[0].signal("-KILL");
    go_on(&mut launchers, [1, 2]);
}

/// Cuts the link between the leader and this launcher; the third launcher reaches both.
fn a_cut_link(node: usize) -> Result<(), String> {
    let hosts = Hosts::new(NODES)?;
    let master = IpAddr::from(hosts.address(0));
    let mut launchers = begun(|node| {
        std::thread::sleep(Duration::from_millis(500 * node as u64));
        hosts.on(node, || Launcher::start(node, master, 29500))
    });
    hosts.cut_between(0, node);
    go_on(&mut launchers, [0, NODES - node]);
    let end = launchers[node].wait_for_line(&["superseded: ", "detached: "], HANG);
    println!("node {node}: {end}");
    Ok(())
}
