//! Failures of one rank: every other rank soon gets an error that names it.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kolo_comm::{Error, Group, Op, Options, Rank, SharedMemory, TransportKind, env};
use kolo_testing::jobs::example;
use kolo_testing::{ALL, Over, free_port, spawn, try_spawn};

fn patient(seconds: f64) -> Options {
    Options { timeout: Some(Duration::from_secs_f64(seconds)), ..Options::default() }
}

#[test]
fn different_calls_are_found() {
    for over in ALL {
        let errors = try_spawn(over, 3, &patient(30.0), |group| match group.rank().0 {
            1 => group.all_reduce(&mut [0f32; 8], Op::Sum).unwrap_err(),
            _ => group.all_reduce(&mut [0f32; 9], Op::Sum).unwrap_err(),
        });
        // The third rank may still be joining the group when the others notice.
        for error in errors {
            let error = error.unwrap_or_else(|error| error);
            assert!(matches!(error, Error::Mismatch { .. }), "{over:?}: {error}");
            let message = error.to_string();
            assert!(message.contains("of 8 f32") && message.contains("of 9 f32"), "{message}");
        }
    }
}

#[test]
fn a_rank_that_leaves_is_named() {
    for over in ALL {
        let errors = spawn(over, 3, &patient(30.0), |group| {
            group.barrier().unwrap();
            if group.rank() == Rank(2) { None } else { Some(group.barrier().unwrap_err()) }
        });
        for error in errors.into_iter().flatten() {
            assert!(matches!(&error, Error::Left { rank, .. } if *rank == Rank(2)), "{over:?}: {error}");
        }
    }
}

#[test]
fn a_rank_that_gives_up_is_named_with_its_reason() {
    for over in ALL {
        let errors = try_spawn(over, 3, &patient(30.0), |group| {
            if group.rank() == Rank(1) {
                group.abandon("no more disk");
                return None;
            }
            Some(group.barrier().unwrap_err())
        });
        // Rank 1 may give up while others are still joining the group.
        for error in errors.into_iter().filter_map(|result| result.unwrap_or_else(Some)) {
            assert_eq!(error.to_string(), "rank 1 gave up: no more disk", "{over:?}");
        }
    }
}

/// A rank that has noticed a failure writes to shared memory that others may still read.
#[test]
fn shared_memory_stays_for_the_others_what_it_was_before_a_failure() {
    for round in 0..20 {
        spawn(Over::SHM, 3, &Options::default(), |group| {
            let mut memory = SharedMemory::new(4 * 50_000 * (1 + round % 5)).unwrap();
            for step in 0.. {
                if group.rank() == Rank(1) && step == round % 7 {
                    return group.abandon("it has had enough");
                }
                let data = memory.elements::<f32>();
                data.fill(1.0);
                let result = group.all_reduce(data, Op::Sum);
                if result.is_err() {
                    return data.fill(9.0);
                }
                assert!(data.iter().all(|x| *x == 3.0));
            }
        });
    }
}

#[test]
fn a_deadline_names_the_rank_that_is_late_and_all_agree() {
    let late = |over| {
        let started = Instant::now();
        let errors = spawn(over, 3, &patient(1.0), |group| {
            group.barrier().unwrap();
            if group.rank() == Rank(1) {
                std::thread::sleep(Duration::from_millis(2500));
            }
            group.barrier().unwrap_err()
        });
        for error in errors {
            assert!(matches!(&error, Error::Timeout { rank, .. } if *rank == Rank(1)), "{over:?}: {error}");
        }
        assert!(started.elapsed() < Duration::from_secs(60));
    };
    // They wait, so they wait together.
    std::thread::scope(|scope| ALL.into_iter().for_each(|over| drop(scope.spawn(move || late(over)))));
}

#[test]
fn ranks_that_never_come_are_named() {
    let place = env::WorkerEnv { rank: Rank(0), world_size: 3, endpoint: free_port().into() };
    let error = Group::join(&place, &patient(0.5)).err().unwrap();
    assert!(error.to_string().starts_with("ranks 1, 2 did not arrive"), "{error}");
}

#[test]
fn a_port_in_use_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let master = listener.local_addr().unwrap();
    let place = env::WorkerEnv { rank: Rank(0), world_size: 2, endpoint: master.into() };
    let error = Group::join(&place, &patient(0.5)).err().unwrap().to_string();
    assert!(error.contains(&master.to_string()) && error.contains("MASTER_PORT"), "{error}");
}

#[test]
fn two_workers_of_one_rank_are_reported() {
    let master = free_port();
    let join = |rank: usize| {
        let place = env::WorkerEnv { rank: Rank(rank), world_size: 2, endpoint: master.into() };
        std::thread::spawn(move || Group::join(&place, &patient(5.0)).map_err(|error| error.to_string()))
    };
    let first = join(1);
    let second = join(1);
    std::thread::sleep(Duration::from_millis(200));
    let zero = join(0);
    let errors: Vec<_> = [first, second].map(|t| t.join().unwrap().err()).into_iter().flatten().collect();
    assert!(errors.iter().any(|e| e.contains("two workers say they are rank 1")), "{errors:?}");
    drop(zero.join().unwrap());
}

struct Workers(Vec<Child>);

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(world: usize, over: &str, mode: &str, timeout: &str) -> Workers {
    let master = free_port();
    let child = |rank: usize| {
        Command::new(example("reducing_worker"))
            .arg(mode)
            .env(env::RANK, rank.to_string())
            .env(env::WORLD_SIZE, world.to_string())
            .env(env::MASTER_PORT, master.port().to_string())
            .env(env::TRANSPORT, over)
            .env(env::TIMEOUT, timeout)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    Workers((0..world).map(child).collect())
}

impl Workers {
    /// Waits until a rank has printed that it is ready.
    fn ready(&mut self, rank: usize) {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains("ready") {
            let mut byte = [0];
            let read = self.0[rank].stdout.as_mut().unwrap().read(&mut byte).unwrap();
            assert_eq!(read, 1, "rank {rank} ended early");
            seen.push(byte[0]);
        }
    }

    /// Reads the rest of a rank's output, until the rank ends.
    fn rest(&mut self, rank: usize) -> String {
        let mut output = String::new();
        self.0[rank].stdout.as_mut().unwrap().read_to_string(&mut output).unwrap();
        output
    }
}

#[test]
fn a_killed_process_is_named_by_all_others() {
    for over in TransportKind::names() {
        for victim in [0, 2] {
            let mut workers = start(3, over, "reduce", "60");
            (0..3).for_each(|rank| workers.ready(rank));
            std::thread::sleep(Duration::from_millis(100));
            workers.0[victim].kill().unwrap();
            let killed = Instant::now();
            for rank in (0..3).filter(|rank| *rank != victim) {
                let output = workers.rest(rank);
                assert!(
                    output.contains(&format!("error: rank {victim} died")),
                    "{over}: rank {rank} printed {output}"
                );
            }
            assert!(killed.elapsed() < Duration::from_secs(30), "{over}: {:?}", killed.elapsed());
        }
    }
}

#[test]
fn a_panicking_process_is_named_by_all_others() {
    let mut workers = start(3, "shm", "panic", "60");
    for rank in [0, 2] {
        let output = workers.rest(rank);
        assert!(output.contains("error: rank 1 gave up: it panicked"), "rank {rank} printed {output}");
    }
}

#[test]
fn a_stopped_process_is_named_at_the_deadline() {
    for over in TransportKind::names() {
        let mut workers = start(2, over, "reduce", "2");
        (0..2).for_each(|rank| workers.ready(rank));
        let pid = workers.0[1].id().to_string();
        assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
        let output = workers.rest(0);
        assert!(output.contains("error: rank 1 did not take part"), "{over}: {output}");
    }
}

#[test]
fn many_buffers_need_few_files() {
    for over in TransportKind::names() {
        let mut workers = start(3, over, "few-files", "60");
        for rank in 0..3 {
            assert_eq!(workers.rest(rank), "200 buffers are right\n", "{over}: rank {rank}");
        }
    }
}

#[test]
fn a_rank_out_of_files_reports_that_and_the_others_see_that_it_gave_up() {
    let mut workers = start(3, "shm", "no-files", "60");
    let cause = "too many open files; this process may have 100: raise `ulimit -n`";
    for rank in 0..3 {
        let output = workers.rest(rank);
        // A failure in the middle of a collective ends the group. The first collective may succeed on
        // ranks that need nothing from rank 1.
        let first = output.lines().find_map(|line| line.strip_prefix("first: "));
        let last = output.lines().find_map(|line| line.strip_prefix("error: "));
        assert!(last.is_some() && (first.is_some() || rank != 1), "rank {rank} printed {output}");
        for line in [first, last].into_iter().flatten() {
            assert!(line.ends_with(cause), "rank {rank} printed {output}");
            assert_eq!(line.starts_with("rank 1 gave up: "), rank != 1, "rank {rank} printed {output}");
        }
    }
}
