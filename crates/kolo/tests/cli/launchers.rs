//! Jobs of several launchers, all on this machine: any of them is killed, even the first, and the weights end
//! in the same bits.

use std::net::TcpListener;
use std::path::Path;

use kolo_testing::jobs::Logged;
use kolo_testing::{selected, send, wait_until};

use super::elastic::{RUN, STEPS, expected, result};
use super::program::{kolo, succeed as run, workers};

/// Starts node `node` of a job of two, with two workers; either node may continue without the other.
fn start(folder: &Path, node: usize, nodes: &[&str], master: &str, more: &[&str]) -> Logged {
    let arbiter = format!("folder:{}", folder.join("arbiter").display());
    let launch = [&["launch", "--nproc", "2", "--master", master, "--arbiter", &arbiter], nodes].concat();
    let program = env!("CARGO_BIN_EXE_kolo");
    let args = [&launch[..], &["--", program], &RUN, &["--out", "run"], more].concat();
    Logged::start(&mut kolo(folder, &args), folder.join(format!("words{node}")))
}

fn succeed(mut launcher: Logged) -> String {
    let (status, said) = launcher.end();
    assert!(status.success(), "{said}");
    said
}

fn steps_done(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("run/steps.jsonl")).unwrap_or_default().lines().count()
}

fn masters(count: usize) -> String {
    let free: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let places: Vec<String> = free.iter().map(|free| free.local_addr().unwrap().to_string()).collect();
    places.join(",")
}

/// Waits until the run has begun: some steps are written.
fn has_begun(launcher: &mut Logged, folder: &Path) {
    let begun = launcher.wait("the run does not begin", |_| steps_done(folder) > 0);
    assert!(begun && steps_done(folder) < STEPS, "it is over already: {}", launcher.error_output());
}

#[test]
fn a_killed_launcher_does_not_change_the_weights() {
    for victim in selected(1, [Some(0), Some(1), None]) {
        let folder = tempfile::tempdir().unwrap();
        let master = masters(1);
        let node = |node: usize| {
            let number = node.to_string();
            start(folder.path(), node, &["--nnodes", "2", "--node-rank", &number], &master, &[])
        };
        let mut launchers = vec![node(0), node(1)];
        if let Some(victim) = victim {
            let first = &mut launchers[0];
            assert!(first.has_said("4 workers over"), "{}", first.error_output());
            has_begun(first, folder.path());
            drop(launchers.remove(victim));
        }
        let words: Vec<String> = launchers.into_iter().map(succeed).collect();
        assert_eq!(result(folder.path()), expected(), "{victim:?}: {words:?}");
        assert_eq!(words[0].contains("of 2 workers"), victim.is_some(), "{victim:?}: {words:?}");
    }
}

/// The words of a node that ends alone must not read as the end of the job.
#[test]
fn a_node_that_is_asked_to_end_says_that_the_others_continue() {
    let folder = tempfile::tempdir().unwrap();
    let master = masters(1);
    let [mut first, mut second] = [0, 1].map(|node| {
        let number = node.to_string();
        start(folder.path(), node, &["--nnodes", "2", "--node-rank", &number], &master, &[])
    });
    has_begun(&mut first, folder.path());
    send("TERM", &[second.process.id()]);
    let (status, words) = second.end();
    let leaves = "this node leaves the job; other nodes continue it with 2 workers";
    assert!(status.code() == Some(143) && words.contains(leaves), "{words}");
    let words = succeed(first);
    assert_eq!(result(folder.path()), expected(), "{words}");
    assert!(!words.contains("this node leaves"), "{words}");
}

#[test]
fn a_launcher_that_comes_late_joins_in() {
    let folder = tempfile::tempdir().unwrap();
    let master = masters(2);
    let range = ["--nnodes", "1:2"];
    // Slow, so that it does not end before the second one joins.
    let start = |node| start(folder.path(), node, &range, &master, &["--slow", "0:compute:5"]);
    let mut first = start(0);
    has_begun(&mut first, folder.path());
    let second = start(1);
    assert!(first.has_said("of 4 workers"), "too late: {}", first.error_output());
    let words = [first, second].map(succeed);
    assert_eq!(result(folder.path()), expected(), "{words:?}");
}

/// A wrong option is known before any worker arrives: no node may train without the other.
#[test]
fn a_wrong_option_of_one_node_ends_the_job_on_both() {
    let folder = tempfile::tempdir().unwrap();
    let master = masters(1);
    let node = |node: usize, more: &[&str]| {
        let number = node.to_string();
        start(folder.path(), node, &["--nnodes", "2", "--node-rank", &number], &master, more)
    };
    let mut first = node(0, &[]);
    wait_until("node 0 starts no workers", || workers(&first.process).len() == 2);
    let (second, said) = node(1, &["--optimzer", "adam"]).end();
    let (first, told) = first.end();
    assert!(second.code() == Some(2) && said.contains("unexpected argument '--optimzer' found"), "{said}");
    let sentence = "error: the job does not begin, because of node 1: unexpected argument '--optimzer' found";
    assert!(first.code() == Some(2) && told.contains(sentence), "{told}");
    assert!(!told.contains("workers over"), "{told}");
}

/// A program that ends without a word leaves the job to the other node, which says how many workers begin.
#[test]
fn a_job_that_begins_without_a_node_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let master = masters(1);
    let first = start(folder.path(), 0, &["--nnodes", "2", "--node-rank", "0"], &master, &[]);
    wait_until("node 0 starts no workers", || workers(&first.process).len() == 2);
    let arbiter = format!("folder:{}", folder.path().join("arbiter").display());
    let launch = ["launch", "--nproc", "2", "--master", &master, "--arbiter", &arbiter];
    // A node that ends before it has met the first one is waited for.
    let ends = "until grep -q 'has joined' words1; do sleep 0.05; done; exit 3";
    let args = [&launch[..], &["--nnodes", "2", "--node-rank", "1", "--", "sh", "-c", ends]].concat();
    let (second, said) = Logged::start(&mut kolo(folder.path(), &args), folder.path().join("words1")).end();
    assert_eq!(second.code(), Some(3), "{said}");
    let told = succeed(first);
    assert!(told.contains("the job begins with 2 of 4 workers"), "{told}");
    assert_eq!(result(folder.path()), expected(), "{told}");
}

/// The last workers of two nodes save the work together, before the launcher of the dead one ends its node.
/// Divided state is whole only as long as both nodes have their workers.
#[test]
fn too_few_workers_of_two_nodes_keep_what_they_have() {
    let divided = ["--shard", "optimizer", "--redundancy", "2"];
    for (node, more) in selected(2, [(0, &divided[..]), (1, &[]), (0, &[]), (1, &divided)]) {
        let folder = tempfile::tempdir().unwrap();
        let master = masters(1);
        let mut launchers = [0, 1].map(|node| {
            let number = node.to_string();
            let nodes = ["--nnodes", "2", "--node-rank", &number, "--min", "4", "--max-restarts", "0"];
            start(folder.path(), node, &nodes, &master, more)
        });
        has_begun(&mut launchers[0], folder.path());
        send("KILL", &workers(&launchers[node].process)[..1]);
        let ended = launchers.map(|mut launcher| launcher.end());
        assert_eq!(ended[node].0.code(), Some(137), "{node}: {ended:?}");
        assert_eq!(ended[1 - node].0.code(), Some(1), "{node}: {ended:?}");
        assert!(ended[1 - node].1.contains("3 of at least 4 workers are there"), "{node}: {ended:?}");
        let goes_on = "`kolo train --resume run` continues after step ";
        assert!(ended.iter().any(|(_, said)| said.contains(goes_on)), "{node}: {ended:?}");
        run(folder.path(), &["train", "--resume", "run", "--nproc", "2"]);
        assert_eq!(result(folder.path()), expected(), "{node}: {ended:?}");
    }
}

/// Each node's exit code says that the run is not finished.
#[test]
fn the_time_of_a_job_is_over_on_all_of_its_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let master = masters(1);
    let node = |node: usize| {
        let number = node.to_string();
        let nodes = ["--nnodes", "2", "--node-rank", &number];
        start(folder.path(), node, &nodes, &master, &["--max-hours", "1e-9"])
    };
    let ended = [node(0), node(1)].map(|mut launcher| launcher.end());
    for (status, said) in &ended {
        let is_told =
            said.contains("hours (--max-hours) is over: ") && said.contains("a checkpoint holds all of it");
        assert!(status.code() == Some(143) && is_told, "{said}");
    }
    run(folder.path(), &["train", "--resume", "run", "--nproc", "2", "--max-hours", "1"]);
    assert_eq!(result(folder.path()), expected(), "{ended:?}");
}

/// The second node has no folder for the optimizer's state: both end, and name node and folder.
#[test]
fn a_job_does_not_begin_without_what_one_of_its_nodes_lacks() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    std::fs::create_dir(folders[0].path().join("state")).unwrap();
    let master = masters(1);
    let start = |node: usize| {
        let (number, folder) = (node.to_string(), folders[node].path());
        let nodes = ["--nnodes", "2", "--node-rank", &number, "--", env!("CARGO_BIN_EXE_kolo")];
        let launch = [&["launch", "--nproc", "2", "--master", &master], &nodes[..], &RUN].concat();
        let args = [&launch[..], &["--offload", "state", "--out", "run"]].concat();
        Logged::start(&mut kolo(folder, &args), folder.join("words"))
    };
    let mut first = start(0);
    // The second launcher ends soon, so the first one must be there.
    wait_until("node 0 starts no workers", || workers(&first.process).len() == 2);
    let (second, said) = start(1).end();
    let (first, told) = first.end();
    let place = folders[1].path().join("state").canonicalize().unwrap_or(folders[1].path().join("state"));
    let lacks =
        format!("{}: the folder for the optimizer's state does not exist; create it", place.display());
    assert!(second.code() == Some(2) && said.contains(&lacks), "{said}");
    let sentence = format!("error: the job does not begin, because of node 1: {lacks}");
    assert!(first.code() == Some(2) && told.contains(&sentence), "{told}");
    assert!(!told.contains("workers over") && told.matches("error:").count() == 1, "{told}");
}
