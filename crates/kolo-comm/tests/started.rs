//! The example `sum` under other launchers: torchrun and mpirun if installed, and srun's variables by hand.
//!
//! A test of a missing launcher is ignored; `.ci/run` installs both mpiruns if it may.

use std::net::{TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kolo_comm::env::WorkerEnv;
use kolo_comm::{Group, Op, Options, Rank, TCP, TransportKind};
use kolo_testing::free_port;
use kolo_testing::harness::{run, test, test_of, test_where};
use kolo_testing::jobs::{Job, JobCommand, example};

fn main() -> ExitCode {
    run(vec![
        test_of("mpirun.openmpi", "open_mpi", mpirun),
        test_of("mpirun.mpich", "mpich", mpirun),
        test_of("mpirun.openmpi", "jobs_of_open_mpi_beside_each_other_keep_apart", two_mpiruns),
        test_of("mpirun.mpich", "jobs_of_mpich_beside_each_other_keep_apart", two_mpiruns),
        test_of("torchrun", "torchrun_whose_store_has_the_port", torchrun),
        test_of("torchrun", "torchrun_on_two_nodes", torchrun_on_two_nodes),
        test_of("torchrun", "torchrun_that_restarts", torchrun_that_restarts),
        test("tasks_of_srun", tasks_of_srun),
        test("a_stranger_at_the_first_place_is_passed_over", a_stranger_at_the_first_place),
        test_where("a_group_over_ipv6", a_group_over_ipv6),
        test("masters_by_name_and_interfaces_by_wish", masters_by_name),
        test("mistakes_are_one_sentence", mistakes),
    ])
}

fn sum() -> PathBuf {
    example("sum")
}

fn assert_sums(output: &str, world: usize, transport: &str) {
    for rank in 0..world {
        let line = format!("rank {rank} of {world} on {transport}: {}", world * (world - 1) / 2);
        assert!(output.contains(&line), "no `{line}` in {output}");
    }
}

/// Name of a launcher, which distinguishes the jobs of several launchers.
fn name_of(launcher: &Path) -> &str {
    launcher.file_name().and_then(|name| name.to_str()).unwrap()
}

fn mpirun(mpirun: &Path) {
    for transport in TransportKind::names() {
        let job = JobCommand::new(name_of(mpirun), mpirun, &["-n", "3", sum().to_str().unwrap()]);
        let (succeeded, output) = job.env("KOLO_TRANSPORT", transport).run();
        assert!(succeeded, "{output}");
        assert_sums(&output, 3, transport);
    }
}

fn two_mpiruns(mpirun: &Path) {
    let start = |n: &str| {
        let name = format!("{}-{n}", name_of(mpirun));
        JobCommand::new(&name, mpirun, &["-n", n, sum().to_str().unwrap()]).start()
    };
    let jobs = ["2", "3"].map(start);
    for (world, job) in [2, 3].into_iter().zip(jobs) {
        let (succeeded, output) = job.end();
        assert!(succeeded, "{output}");
        assert_sums(&output, world, "shm");
    }
}

fn torchrun(torchrun: &Path) {
    let port = free_port().port().to_string();
    let sum = sum();
    let args = ["--nproc-per-node", "3", "--master-port", &port, "--no-python", sum.to_str().unwrap()];
    let (succeeded, output) = JobCommand::new("torchrun", torchrun, &args).run();
    assert!(succeeded, "{output}");
    assert_sums(&output, 3, "shm");
}

fn torchrun_on_two_nodes(torchrun: &Path) {
    let (port, sum) = (free_port().port().to_string(), sum());
    let node = |rank: usize| {
        let rank = rank.to_string();
        let nodes = ["--nnodes", "2", "--node-rank", &rank, "--nproc-per-node", "2"];
        let place =
            ["--master-addr", "localhost", "--master-port", &port, "--no-python", sum.to_str().unwrap()];
        JobCommand::new(&format!("torchrun-node-{rank}"), torchrun, &[nodes, place].concat()).start()
    };
    let ends = [1, 0].map(node).map(Job::end);
    let output = ends.iter().map(|(_, output)| output.as_str()).collect::<String>();
    assert!(ends.iter().all(|(succeeded, _)| *succeeded), "{output}");
    assert_sums(&output, 4, "shm");
}

/// Rank 1 fails in the first attempt, while rank 0 waits for it or after all ranks have met.
fn torchrun_that_restarts(torchrun: &Path) {
    let sum = sum();
    for script in [
        "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 3; exec \"$0\"",
        "\"$0\" && [ $RANK$TORCHELASTIC_RESTART_COUNT != 10 ]",
    ] {
        let port = free_port().port().to_string();
        let launcher =
            ["--nproc-per-node", "2", "--max-restarts", "1", "--master-port", &port, "--no-python"];
        let args = [&launcher[..], &["sh", "-c", script, sum.to_str().unwrap()]].concat();
        let (succeeded, output) = JobCommand::new("torchrun-restarts", torchrun, &args).run();
        assert!(succeeded, "{output}");
        assert_sums(&output, 2, "shm");
    }
}

/// Two nodes of two tasks each, as Slurm 22.05 describes them; all addresses are loopback.
fn tasks_of_srun() {
    let (job, sum) = (std::process::id().to_string(), sum());
    let task = |rank: usize| {
        JobCommand::new(&format!("srun-{rank}"), &sum, &[])
            .env("SLURM_JOB_ID", &job)
            .env("SLURM_STEP_ID", "0")
            .env("SLURM_PROCID", &rank.to_string())
            .env("SLURM_LOCALID", &(rank % 2).to_string())
            .env("SLURM_NTASKS", "4")
            .env("SLURM_STEP_NUM_TASKS", "4")
            .env("SLURM_STEP_NODELIST", "127.0.0.[2-3]")
            .env("KOLO_TRANSPORT", "tcp")
            .start()
    };
    let tasks = [3, 2, 1, 0].map(task);
    let ends: Vec<(bool, String)> = tasks.into_iter().map(Job::end).collect();
    let output = ends.iter().map(|(_, output)| output.as_str()).collect::<String>();
    assert!(ends.iter().all(|(succeeded, _)| *succeeded), "{output}");
    assert_sums(&output, 4, "tcp");
}

/// Another program occupies the first derived port: the workers find each other at the next one.
fn a_stranger_at_the_first_place() {
    let (job, sum) = (format!("9{}", std::process::id()), sum());
    let variables = |job: JobCommand, rank: usize, id: &str| {
        job.env("SLURM_JOB_ID", id)
            .env("SLURM_STEP_ID", "0")
            .env("SLURM_PROCID", &rank.to_string())
            .env("SLURM_NTASKS", "2")
            .env("SLURM_STEP_NODELIST", "127.0.0.4")
            .env("RUST_LOG", "info")
    };
    let pair = |name: &str| {
        let start = |rank: usize| {
            variables(JobCommand::new(&format!("{name}-{rank}"), &sum, &[]), rank, &job).start()
        };
        [0, 1].map(start).map(Job::end)
    };
    let [(succeeded, output), _] = pair("alone");
    assert!(succeeded, "{output}");
    let place = |output: &str| {
        let (_, rest) = output.split_once("the store at ").unwrap();
        rest.split(',').next().unwrap().to_owned()
    };
    // The stranger accepts connections and never answers.
    let stranger = TcpListener::bind(place(&output)).unwrap();
    let [zero, one] = pair("beside");
    assert!(zero.0 && one.0, "{} {}", zero.1, one.1);
    assert_ne!(place(&zero.1), stranger.local_addr().unwrap().to_string());
    assert_sums(&(zero.1 + &one.1), 2, "shm");
}

fn a_group_over_ipv6() -> Result<(), String> {
    let listener = TcpListener::bind("[::1]:0").map_err(|_| "this host has no IPv6")?;
    let master = listener.local_addr().unwrap();
    drop(listener);
    let options = Options { transport: Some(&TCP), ..Options::default() };
    let join = |rank: usize| {
        let place = WorkerEnv { rank: Rank(rank), world_size: 3, endpoint: master.into() };
        let group = Group::join(&place, &options).unwrap();
        let mut sum = [rank as f32];
        group.all_reduce(&mut sum, Op::Sum).unwrap();
        sum[0]
    };
    let sums: Vec<f32> = std::thread::scope(|scope| {
        let threads = [0, 1, 2].map(|rank| scope.spawn(move || join(rank)));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(sums, [3.0; 3]);
    Ok(())
}

/// Workers started by hand at `localhost`, at both of its addresses; the log has the interface.
fn masters_by_name() {
    let sum = sum();
    let loopback = if Path::new("/sys/class/net/lo").exists() { "lo" } else { "lo0" };
    let six = ("::1", 0).to_socket_addrs().is_ok_and(|mut at| TcpListener::bind(at.next().unwrap()).is_ok());
    for host in ["localhost", "127.0.0.1", "::1"].into_iter().filter(|host| six || *host != "::1") {
        let port = free_port().port().to_string();
        let start = |rank: usize| {
            JobCommand::new(&format!("by-hand-{rank}"), &sum, &[])
                .env("RANK", &rank.to_string())
                .env("WORLD_SIZE", "2")
                .env("MASTER_ADDR", host)
                .env("MASTER_PORT", &port)
                .env("KOLO_TRANSPORT", "tcp")
                .env("KOLO_IFACE", loopback)
                .env("RUST_LOG", "info")
                .start()
        };
        let ends = [1, 0].map(start).map(Job::end);
        let output = ends.iter().map(|(_, output)| output.as_str()).collect::<String>();
        assert_sums(&output, 2, "tcp");
        assert!(output.contains(&format!("({loopback})")), "{output}");
    }
}

fn mistakes() {
    let sum = sum();
    let by_hand = |changes: &[(&str, &str)]| {
        let base = JobCommand::new("mistake", &sum, &[])
            .env("RANK", "0")
            .env("WORLD_SIZE", "2")
            .env("MASTER_PORT", "1");
        changes.iter().fold(base, |job, (name, value)| job.env(name, value)).run()
    };
    for (changes, parts) in [
        (&[("KOLO_IFACE", "nonesuch0")][..], &["KOLO_IFACE", "`nonesuch0`", "lo"][..]),
        (&[("MASTER_ADDR", "no such host")], &["MASTER_ADDR", "`no such host`"]),
        // An address for documentation: no machine has it.
        (
            &[("MASTER_ADDR", "192.0.2.77"), ("KOLO_TOKEN", "0123456789abcdef")],
            &["MASTER_ADDR", "192.0.2.77", "no address of this host"],
        ),
        (&[("WORLD_SIZE", "many")], &["WORLD_SIZE", "`many`"]),
    ] {
        let (succeeded, output) = by_hand(changes);
        assert!(!succeeded && output.lines().count() == 1, "{output}");
        assert!(output.starts_with("error: ") && parts.iter().all(|part| output.contains(part)), "{output}");
    }
}
