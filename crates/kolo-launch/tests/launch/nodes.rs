//! Tests of several nodes: one launcher per node, all on loopback, and one group over all of their workers.

use std::net::{TcpListener, ToSocketAddrs};

use kolo_comm::{Group, Op};

use crate::harness::{Running, Trial, file};

/// Variable that makes the test program a worker here.
const MEMBER: &str = "KOLO_TEST_MEMBER";

/// Runs a worker of the tests below, which sums the ranks of its group.
pub fn join_if_asked() {
    if std::env::var_os(MEMBER).is_none() {
        return;
    }
    let group = Group::from_env().unwrap_or_else(|error| panic!("{error}"));
    let mut sum = [group.rank().0 as f32];
    group.all_reduce(&mut sum, Op::Sum).unwrap();
    println!("@{} of {}: {}", group.rank(), group.world_size(), sum[0]);
}

fn start(rank: usize, nproc: usize, master: &str, transport: &str) -> Running {
    let program = std::env::current_exe().unwrap();
    let command = [program.to_str().unwrap(), "--exact", "role_member", "--nocapture", "--test-threads=1"];
    Trial::of(nproc, &command)
        .set("nnodes", 2)
        .set("node_rank", rank)
        .set("master", master)
        .after(&format!("export {MEMBER}=1 KOLO_TIMEOUT=60 KOLO_TRANSPORT={transport}"))
        .start()
}

fn free_port(host: &str) -> u16 {
    let address = (host, 0).to_socket_addrs().unwrap().next().unwrap();
    TcpListener::bind(address).unwrap().local_addr().unwrap().port()
}

#[test]
fn two_nodes_form_one_group() {
    for (host, written, transport) in
        [("127.0.0.1", "127.0.0.1", "shm"), ("localhost", "localhost", "tcp"), ("::1", "[::1]", "tcp")]
    {
        let master = format!("{written}:{}", free_port(host));
        // The later node starts first: it has to wait for the one that serves.
        let nodes = [1, 0].map(|rank| start(rank, 2, &master, transport));
        let mut seen = Vec::new();
        for node in nodes {
            let ended = node.end();
            assert_eq!(ended.code, 0, "{master}: {}", ended.err);
            seen.extend(ended.out.split('@').skip(1).map(|output| output.lines().next().unwrap().to_owned()));
            ended.left_nothing(&[]);
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3].map(|rank| format!("rank {rank} of 4: 6")), "{master}");
    }
}

#[test]
fn a_master_that_cannot_be_understood_starts_nothing() {
    let ended = Trial::new(2, "note started").set("nnodes", 2).set("master", "::1").ends_with(2);
    assert!(ended.error().contains("--master") && ended.error().contains("brackets"), "{}", ended.err);
    assert!(!ended.path("started").exists());
}

/// The first node waits eight seconds for the second, which has another arbiter.
#[test]
fn a_node_with_another_arbiter_is_refused_at_once_and_the_first_one_names_the_missing_node() {
    let program = std::env::current_exe().unwrap();
    let command = [program.to_str().unwrap(), "--exact", "role_elastic", "--nocapture", "--test-threads=1"];
    let master = format!("127.0.0.1:{}", free_port("127.0.0.1"));
    let start = |rank: usize, arbiter: &str, timeout: u32| {
        let trial = Trial::of(1, &command).set("nnodes", 2).set("node_rank", rank).set("arbiter", arbiter);
        let environment = format!("export KOLO_TEST_ELASTIC=finish KOLO_TIMEOUT={timeout}");
        trial.set("master", master.as_str()).after(&environment).start()
    };
    let (first, second) = (start(0, "majority", 8), start(1, "folder:/nowhere", 300));
    let second = second.end();
    for part in ["`--arbiter majority`", "`folder:/nowhere`", "give all nodes the same"] {
        assert!(second.error().contains(part), "{}", second.err);
    }
    assert!(second.err.contains("kolo: this node's launcher takes no part in the job: "), "{}", second.err);
    let first = first.end();
    assert!(first.err.contains(": 1 of 2 nodes has come, without node 1\n"), "{}", first.err);
    assert!(first.error().contains("it needs 2 nodes"), "{}", first.err);
    [first, second].iter().for_each(|node| node.left_nothing(&[]));
}

/// Runs two nodes with different tokens and one worker each, which wait three seconds for each other.
fn with_two_tokens(role: &str, more: &str) -> [crate::harness::Ended; 2] {
    let folder = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let command = [program.to_str().unwrap(), "--exact", role, "--nocapture", "--test-threads=1"];
    let master = format!("127.0.0.1:{}", free_port("127.0.0.1"));
    let start = |rank: usize| {
        let token =
            file(folder.path(), &format!("token{rank}"), &format!("the token of node {rank}\n"), false);
        let trial =
            Trial::of(1, &command).set("nnodes", 2).set("node_rank", rank).set("master", master.as_str());
        trial.set("token_file", token).after(&format!("export KOLO_TIMEOUT=3 {more}")).start()
    };
    [0, 1].map(start).map(Running::end)
}

#[test]
fn nodes_with_different_tokens_report_it_and_none_begins_alone() {
    let [first, second] = with_two_tokens("role_elastic", "KOLO_TEST_ELASTIC=finish");
    for (node, parts) in [
        (&first, ["it needs 2 nodes", "1 has come within 3s", "127.0.0.1 was refused", "--token-file"]),
        (&second, ["this node's token differs", "127.0.0.1:", "--token-file", "KOLO_TOKEN"]),
    ] {
        assert_eq!(node.code, 1, "{}", node.err);
        assert!(parts.iter().all(|part| node.error().contains(part)), "{}", node.err);
        assert!(!node.out.contains("in generation"), "{}", node.out);
        node.left_nothing(&[]);
    }
    assert!(
        first.err.contains("kolo: this node refused a node at 127.0.0.1, because its token"),
        "{}",
        first.err
    );
}

#[test]
fn a_program_that_is_not_elastic_reports_it_as_well() {
    let [first, second] = with_two_tokens("role_member", &format!("{MEMBER}=1"));
    assert!(first.code != 0 && second.code != 0, "{} {}", first.err, second.err);
    // The launcher says it, or rank 0 does, whichever the other node has reached first.
    let is_told = [
        "this node refused a node at 127.0.0.1, because its token",
        "were refused because their token differs",
    ];
    assert!(is_told.iter().any(|words| first.err.contains(words)), "{}", first.err);
    assert!(second.err.contains("this node's token differs"), "{}", second.err);
}
