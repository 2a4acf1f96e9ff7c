//! Tests of elastic jobs of two nodes that end, or do not begin: both launchers are on loopback.

use std::net::TcpListener;

use kolo_comm::{Group, JobMembership, Options, env};
use kolo_elastic::{Member, report_fixed};
use kolo_launch::FailureKind::{self, NoRoom, WrongInput};
use rustix::process::Signal;

use crate::harness::{Ended, Running, Trial, kill};

/// Variable that makes the test program a worker here.
const TASK: &str = "KOLO_TEST_TWO_NODES";
const OBSTACLE: &str = "/state: there is no room for 12 bytes";

/// Runs a worker of the tests below, which meets the others until one of them ends. The first worker of node
/// 1 cannot begin: with `absent`, it finds so before it arrives; with `early`, when the first group has
/// formed; with `late`, when all hold state. With `few`, workers that are too few print their number and end.
/// With `well`, all end when they have met. With `fixed0` or `fixed1`, the workers of that node form a group
/// that needs all workers.
pub fn work_if_asked() {
    let Ok(task) = std::env::var(TASK) else { return };
    let folder = std::env::var("DIR").unwrap();
    let number = |name| std::env::var(name).unwrap();
    let lacks = |when: &str| task == when && number(env::GROUP_RANK) == "1" && number(env::LOCAL_RANK) == "0";
    if lacks("absent") {
        fail(WrongInput, 2);
    }
    if task == format!("fixed{}", number(env::GROUP_RANK)) {
        report_fixed(&Options::from_env().unwrap(), "`--shard optimizer`");
        panic!("{:?}", Group::from_env().err());
    }
    let mut member = Member::from_env().unwrap().unwrap();
    member.job_id().unwrap();
    let mut reason: Option<String> = None;
    loop {
        let group = member.next_group(reason.as_deref()).unwrap();
        if member.too_few().is_some() {
            println!("\n@last of {}", group.world_size());
            let _ = group.barrier();
            std::process::exit(1);
        }
        if lacks("early") {
            fail(NoRoom, 1);
        }
        if ["late", "few"].contains(&task.as_str()) {
            member.set_has_state();
        }
        let is_second = member.generation().unwrap().number > 1;
        if group.barrier().is_ok() {
            if task == "well" {
                return;
            }
            if lacks("late") {
                fail(NoRoom, 1);
            }
            if is_second && group.world_size() == 2 {
                return;
            }
            std::fs::write(format!("{folder}/pid.{}", group.rank().0), std::process::id().to_string())
                .unwrap();
        }
        while group.barrier().is_ok() && !member.is_change_wanted() {}
        reason = Some("others end".into());
    }
}

/// Ends a worker as `kolo::main` does.
fn fail(kind: FailureKind, code: i32) -> ! {
    kolo_launch::report_failure_of_kind(&OBSTACLE, None, Some(kind)).unwrap();
    std::process::exit(code);
}

/// Starts two nodes of two workers.
fn start(task: &str, min: usize) -> [Running; 2] {
    let program = std::env::current_exe().unwrap();
    let command =
        [program.to_str().unwrap(), "--exact", "role_of_two_nodes", "--nocapture", "--test-threads=1"];
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let master = free.local_addr().unwrap().to_string();
    drop(free);
    [0, 1].map(|rank: usize| {
        let trial = Trial::of(2, &command).set("nnodes", 2).set("node_rank", rank);
        let trial = trial.set("master", master.as_str()).set("min", min).set("restarts", 0);
        trial.after(&format!("export {TASK}={task} KOLO_TIMEOUT=60")).start()
    })
}

fn assert_nothing_left(nodes: &[Ended]) {
    nodes.iter().for_each(|node| node.left_nothing(&[]));
}

#[test]
fn what_one_node_lacks_ends_a_job_before_it_begins_on_both() {
    for (task, code) in [("absent", 2), ("early", 1)] {
        let nodes = start(task, 1).map(Running::end);
        let [first, second] = &nodes;
        assert_eq!((first.code, second.code), (code, code), "{task}: {}\n{}", first.err, second.err);
        let expected = format!("the job does not begin, because of node 1: {OBSTACLE}");
        assert_eq!(first.error(), expected, "{task}: {}", first.err);
        assert!(second.error().ends_with(OBSTACLE), "{task}: {}", second.err);
        for node in &nodes {
            assert_eq!(node.err.matches(OBSTACLE).count(), 1, "{task}: {}", node.err);
            assert!(!node.err.contains("generation 2"), "{task}: {}", node.err);
        }
        assert_nothing_left(&nodes);
    }
}

#[test]
fn a_launcher_that_joins_another_one_says_so_and_when_its_work_is_done() {
    let nodes = start("well", 1).map(Running::end);
    let [first, second] = &nodes;
    assert_eq!((first.code, second.code), (0, 0), "{}\n{}", first.err, second.err);
    let lines: Vec<&str> = second.err.lines().collect();
    assert!(lines[0].starts_with("kolo: node 1 has joined the job of node 0 at 127.0.0.1:"), "{lines:?}");
    assert_eq!(lines[1..], ["kolo: node 1 with 2 workers has done its part of the job"]);
    assert_eq!(first.err, "");
    assert_nothing_left(&nodes);
}

/// Neither the members nor the fixed group would ever have all workers.
#[test]
fn nodes_whose_settings_form_different_groups_are_refused_at_once_on_both() {
    for (task, fixed, other) in [("fixed0", "node 0", "node 1"), ("fixed1", "node 1", "node 0")] {
        let nodes = start(task, 1).map(Running::end);
        for node in &nodes {
            let begin =
                format!("the job does not begin, because of {fixed}: its `--shard optimizer` needs all");
            assert!(node.error().starts_with(&begin) && node.error().contains(other), "{task}: {}", node.err);
            assert_eq!(node.code, 2, "{task}: {}", node.err);
        }
        assert_nothing_left(&nodes);
    }
}

#[test]
fn a_job_that_has_begun_goes_on_without_a_node_that_lacks_room() {
    let nodes = start("late", 1).map(Running::end);
    let [first, second] = &nodes;
    assert_eq!((first.code, second.code), (0, 1), "{}\n{}", first.err, second.err);
    assert!(second.error().ends_with(OBSTACLE), "{}", second.err);
    assert!(first.err.contains("of 2 workers") && !first.err.contains(OBSTACLE), "{}", first.err);
    assert_nothing_left(&nodes);
}

/// The launcher of the dead worker ends its other one, which saves the work with the others before.
#[test]
fn too_few_workers_of_both_nodes_form_the_last_group() {
    for victim in [0, 1] {
        let nodes = start("few", 4);
        let pid = nodes[victim].noted_pid(&format!("pid.{}", 2 * victim));
        kill(pid, Signal::KILL);
        let nodes = nodes.map(Running::end);
        let last = |node: &Ended| node.out.matches("@last of 3").count();
        let (own, other) = (&nodes[victim], &nodes[1 - victim]);
        assert_eq!((last(own), last(other)), (1, 2), "{victim}: {}\n{}", own.out, other.out);
        assert_eq!((own.code, other.code), (137, 1), "{victim}: {}\n{}", own.err, other.err);
        assert_nothing_left(&nodes);
    }
}
