//! The example `sum`, started by others: the real torchrun and mpirun where they are installed, srun's variables by hand.
//!
//! A launcher that is missing is skipped with a note (`cargo test -- --nocapture` shows it); `.ci/run` installs both mpiruns
//! where it may.

use std::net::{TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};

use kolo_comm::env::WorkerEnv;
use kolo_comm::{Group, Op, Options, Rank, TCP};
use kolo_testing::jobs::{Trial, end, find, trial};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The example's program, which `cargo test` builds beside the tests.
fn sum() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let built = program.ancestors().nth(2).unwrap().join("examples/sum");
    assert!(built.exists(), "{} is missing: cargo build -p kolo-comm --example sum", built.display());
    built
}

/// All of `world` ranks have said their sum.
fn assert_sums(words: &str, world: usize, transport: &str) {
    for rank in 0..world {
        let line = format!("rank {rank} of {world} on {transport}: {}", world * (world - 1) / 2);
        assert!(words.contains(&line), "no `{line}` in {words}");
    }
}

#[test]
fn both_mpiruns() {
    for name in ["mpirun.openmpi", "mpirun.mpich"] {
        let Some(mpirun) = find(name) else { continue };
        for transport in ["shm", "tcp"] {
            let job = trial(name, &mpirun, &["-n", "3", sum().to_str().unwrap()]);
            let (well, words) = job.env("KOLO_TRANSPORT", transport).run();
            assert!(well, "{name}: {words}");
            assert_sums(&words, 3, transport);
        }
    }
}

#[test]
fn jobs_of_mpirun_beside_each_other_keep_apart() {
    for name in ["mpirun.openmpi", "mpirun.mpich"] {
        let Some(mpirun) = find(name) else { continue };
        let start =
            |n: &str| trial(&format!("{name}-{n}"), &mpirun, &["-n", n, sum().to_str().unwrap()]).start();
        let jobs = ["2", "3"].map(start);
        for (world, job) in [2, 3].into_iter().zip(jobs) {
            let (well, words) = end(job);
            assert!(well, "{name}: {words}");
            assert_sums(&words, world, "shm");
        }
    }
}

#[test]
fn torchrun_whose_store_has_the_port() {
    let Some(torchrun) = find("torchrun") else { return };
    let port = free_port().to_string();
    let sum = sum();
    let args = ["--nproc-per-node", "3", "--master-port", &port, "--no-python", sum.to_str().unwrap()];
    let (well, words) = trial("torchrun", &torchrun, &args).run();
    assert!(well, "{words}");
    assert_sums(&words, 3, "shm");
}

#[test]
fn torchrun_on_two_nodes() {
    let Some(torchrun) = find("torchrun") else { return };
    let (port, sum) = (free_port().to_string(), sum());
    let node = |rank: usize| {
        let rank = rank.to_string();
        let nodes = ["--nnodes", "2", "--node-rank", &rank, "--nproc-per-node", "2"];
        let place =
            ["--master-addr", "localhost", "--master-port", &port, "--no-python", sum.to_str().unwrap()];
        trial(&format!("torchrun-node-{rank}"), &torchrun, &[nodes, place].concat()).start()
    };
    let said = [1, 0].map(node).map(end);
    let words = said.iter().map(|(_, words)| words.as_str()).collect::<String>();
    assert!(said.iter().all(|(well, _)| *well), "{words}");
    assert_sums(&words, 4, "shm");
}

/// Rank 1 fails in the first attempt while rank 0 waits for it, or after all of them have met.
#[test]
fn torchrun_that_restarts() {
    let Some(torchrun) = find("torchrun") else { return };
    let sum = sum();
    for script in [
        "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 3; exec \"$0\"",
        "\"$0\" && [ $RANK$TORCHELASTIC_RESTART_COUNT != 10 ]",
    ] {
        let port = free_port().to_string();
        let launcher =
            ["--nproc-per-node", "2", "--max-restarts", "1", "--master-port", &port, "--no-python"];
        let args = [&launcher[..], &["sh", "-c", script, sum.to_str().unwrap()]].concat();
        let (well, words) = trial("torchrun-restarts", &torchrun, &args).run();
        assert!(well, "{words}");
        assert_sums(&words, 2, "shm");
    }
}

/// Two nodes of two tasks each, as Slurm 22.05 describes them; their addresses are all of loopback.
#[test]
fn tasks_of_srun() {
    let (job, sum) = (std::process::id().to_string(), sum());
    let task = |rank: usize| {
        trial(&format!("srun-{rank}"), &sum, &[])
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
    let said: Vec<(bool, String)> = tasks.into_iter().map(end).collect();
    let words = said.iter().map(|(_, words)| words.as_str()).collect::<String>();
    assert!(said.iter().all(|(well, _)| *well), "{words}");
    assert_sums(&words, 4, "tcp");
}

/// Another program has the first derived port: the workers find each other at the next.
#[test]
fn a_stranger_at_the_first_place_is_passed_over() {
    let (job, sum) = (format!("9{}", std::process::id()), sum());
    let variables = |job: Trial, rank: usize, id: &str| {
        job.env("SLURM_JOB_ID", id)
            .env("SLURM_STEP_ID", "0")
            .env("SLURM_PROCID", &rank.to_string())
            .env("SLURM_NTASKS", "2")
            .env("SLURM_STEP_NODELIST", "127.0.0.4")
            .env("RUST_LOG", "info")
    };
    let pair = |name: &str| {
        let start = |rank: usize| variables(trial(&format!("{name}-{rank}"), &sum, &[]), rank, &job).start();
        [0, 1].map(start).map(end)
    };
    let [(well, words), _] = pair("alone");
    assert!(well, "{words}");
    let place = |words: &str| {
        let (_, rest) = words.split_once("the store at ").unwrap();
        rest.split(',').next().unwrap().to_owned()
    };
    // It accepts and never answers.
    let stranger = TcpListener::bind(place(&words)).unwrap();
    let [zero, one] = pair("beside");
    assert!(zero.0 && one.0, "{} {}", zero.1, one.1);
    assert_ne!(place(&zero.1), stranger.local_addr().unwrap().to_string());
    assert_sums(&(zero.1 + &one.1), 2, "shm");
}

#[test]
fn a_group_over_ipv6() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        println!("note: this host has no IPv6, so it is not tried");
        return;
    };
    let master = listener.local_addr().unwrap();
    drop(listener);
    let options = Options { transport: Some(&TCP), ..Options::default() };
    let join = |rank: usize| {
        let place = WorkerEnv { rank: Rank(rank), world_size: 3, local_rank: rank, endpoint: master.into() };
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
}

/// Workers by hand at `localhost`, whatever it leads to, and over IPv6; the interface is in the log.
#[test]
fn masters_by_name_and_interfaces_by_wish() {
    let sum = sum();
    let loopback = if Path::new("/sys/class/net/lo").exists() { "lo" } else { "lo0" };
    let six = ("::1", 0).to_socket_addrs().is_ok_and(|mut at| TcpListener::bind(at.next().unwrap()).is_ok());
    for host in ["localhost", "127.0.0.1", "::1"].into_iter().filter(|host| six || *host != "::1") {
        let port = free_port().to_string();
        let start = |rank: usize| {
            trial(&format!("by-hand-{rank}"), &sum, &[])
                .env("RANK", &rank.to_string())
                .env("WORLD_SIZE", "2")
                .env("MASTER_ADDR", host)
                .env("MASTER_PORT", &port)
                .env("KOLO_TRANSPORT", "tcp")
                .env("KOLO_IFACE", loopback)
                .env("RUST_LOG", "info")
                .start()
        };
        let said = [1, 0].map(start).map(end);
        let words = said.iter().map(|(_, words)| words.as_str()).collect::<String>();
        assert_sums(&words, 2, "tcp");
        assert!(words.contains(&format!("({loopback})")), "{words}");
    }
}

#[test]
fn mistakes_are_one_sentence() {
    let sum = sum();
    let by_hand = |changes: &[(&str, &str)]| {
        let base =
            trial("mistake", &sum, &[]).env("RANK", "0").env("WORLD_SIZE", "2").env("MASTER_PORT", "1");
        changes.iter().fold(base, |trial, (name, value)| trial.env(name, value)).run()
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
        let (well, words) = by_hand(changes);
        assert!(!well && words.lines().count() == 1, "{words}");
        assert!(words.starts_with("error: ") && parts.iter().all(|part| words.contains(part)), "{words}");
    }
}
