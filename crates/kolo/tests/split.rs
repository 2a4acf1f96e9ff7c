//! A job of two nodes whose network is cut: the side that the arbiter selects continues, and each step is
//! reported once.

mod chaos;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use chaos::injected;
use kolo_testing::harness::{run, slow, test_where};
use kolo_testing::jobs::{Logged, find};
use kolo_testing::{Etcd, TwoHosts};

const STEPS: usize = 400;
const RUN: [&str; 10] = [
    "train", "--model", "mlp", "--shards", "4", "--steps", "400", "--batch-size", "8", "--checkpoint-epochs",
];

fn main() -> ExitCode {
    run(vec![
        slow(test_where("a_majority_goes_on", || one_side_goes_on(majority))),
        slow(test_where("who_first_writes_to_the_folder_goes_on", || one_side_goes_on(shared_folder))),
        slow(test_where("who_reaches_etcd_goes_on", || one_side_goes_on(etcd))),
        slow(test_where("chaos_cuts_links", chaos_cuts_links)),
    ])
}

/// The argument of `--arbiter`, and the arbiter's server.
type Arbiter = (String, Option<Etcd>);

fn majority(_hosts: &TwoHosts, _folder: &Path) -> Result<Arbiter, String> {
    Ok(("majority".into(), None))
}

fn shared_folder(_hosts: &TwoHosts, folder: &Path) -> Result<Arbiter, String> {
    Ok((format!("folder:{}", folder.join("arbiter").display()), None))
}

/// Starts an etcd on the second host, which the first one cannot reach after the cut.
fn etcd(hosts: &TwoHosts, _folder: &Path) -> Result<Arbiter, String> {
    let program = find("etcd").ok_or("etcd is not installed")?;
    let etcd = hosts.on(1, || Etcd::start_at(&program, hosts.address(1), [2379, 2380]));
    Ok((format!("etcd://{}", etcd.endpoint()), Some(etcd)))
}

fn kolo(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kolo"));
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command
}

/// Starts node `node` of a job of two, with two workers each, on its own host.
fn start(hosts: &TwoHosts, folder: &Path, node: usize, arbiter: &str) -> Logged {
    let (number, master) = (node.to_string(), format!("{}:29500", hosts.address(0)));
    let launch = ["launch", "--nproc", "2", "--nnodes", "2", "--node-rank", &number, "--master", &master];
    let job = ["--token-file", "token", "--max-restarts", "0", "--arbiter", arbiter, "--"];
    let program = [env!("CARGO_BIN_EXE_kolo")];
    let args = [&launch[..], &job, &program, &RUN, &["100", "--out", "run"]].concat();
    let (mut command, words) = (kolo(folder, &args), folder.join(format!("words{node}")));
    hosts.on(node, || Logged::start(&mut command, words))
}

/// Returns the numbers of the reported steps.
fn steps(folder: &Path) -> Vec<usize> {
    let text = std::fs::read_to_string(folder.join("run/steps.jsonl")).unwrap_or_default();
    // The last line may be half written.
    let values = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    values.map(|value| value["step"].as_u64().unwrap() as usize).collect()
}

fn hash(run: &Path) -> String {
    let text = std::fs::read_to_string(run.join("summary.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&text).unwrap()["weights_sha256"].to_string()
}

fn one_side_goes_on(arbiter: fn(&TwoHosts, &Path) -> Result<Arbiter, String>) -> Result<(), String> {
    let (hosts, folder) = (TwoHosts::new()?, tempfile::tempdir().unwrap());
    let folder = folder.path();
    std::fs::write(folder.join("token"), "of a test of cut networks").unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(folder.join("token"), private).unwrap();
    let (arbiter, _server) = arbiter(&hosts, folder)?;
    let mut nodes = [0, 1].map(|node| start(&hosts, folder, node, &arbiter));
    for node in &mut nodes {
        assert!(node.wait("it does not begin", |_| steps(folder).len() >= 20), "{}", node.error_output());
    }
    hosts.cut();
    let [(first, one), (second, two)] = nodes.each_mut().map(Logged::end);
    let (ended, said) = ([first.success(), second.success()], [one, two]);
    let [first, second] = ended;
    assert!(first != second, "{ended:?}: {said:?}");
    let other = &said[usize::from(first)];
    assert!(other.contains("other nodes of the job continue, or may continue"), "{other}");
    assert!(other.contains("--resume"), "{other}");
    assert_eq!(steps(folder), (0..STEPS).collect::<Vec<_>>(), "each step once: {said:?}");

    let alone = [&RUN[..], &["100", "--nproc", "1", "--out", "alone"]].concat();
    let ended = kolo(folder, &alone).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(hash(&folder.join("run")), hash(&folder.join("alone")), "the undisturbed run's bits");
    Ok(())
}

/// Seeds whose plans cut links for a moment and for good.
fn chaos_cuts_links() -> Result<(), String> {
    // Returns an error here if hosts cannot be made; the runs have hosts of their own.
    drop(TwoHosts::new()?);
    let job = ["--cut-links", "--nodes", "2", "--nproc", "1", "--arbiter", "majority"];
    let seeds = ["--seeds", "2", "--seed", "10", "--limit", "300", "--"];
    let run = ["--model", "mlp", "--steps", "400", "--batch-size", "2"];
    injected(&[&job[..], &seeds, &run].concat(), "for good at");
    Ok(())
}
