//! Tests with each launcher's variables: the examples of the table, which real launchers have set.

use super::launchers::Example;
use super::*;

type Set = &'static [(&'static str, &'static str)];

fn with<R>(vars: &[(&str, &str)], then: impl FnOnce(&Variables) -> R) -> R {
    let find = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string());
    then(&Variables(&find))
}

fn read(vars: &[(&str, &str)]) -> Result<Option<WorkerEnv>, Error> {
    with(vars, WorkerEnv::from_variables)
}

fn worker_env(vars: &[(&str, &str)]) -> WorkerEnv {
    read(vars).unwrap().unwrap()
}

fn launcher(vars: &[(&str, &str)]) -> &'static str {
    with(vars, |variables| match detect(variables) {
        Origin::Launcher(launcher) => launcher.name(),
        Origin::Unknown { .. } => "unknown",
        Origin::NoLauncher => "none",
    })
}

fn example(name: &str) -> Example {
    LAUNCHERS.iter().find(|launcher| launcher.name() == name).unwrap().example()
}

fn set(name: &str) -> Set {
    example(name).variables
}

fn torchrun() -> Set {
    set("torchrun")
}

fn open_mpi() -> Set {
    set("Open MPI's mpirun")
}

fn mpich() -> Set {
    set("MPICH's mpirun")
}

fn slurm() -> Set {
    set("srun")
}

/// Returns the set with some variables changed, and without those whose new value is empty.
fn changed<'a>(set: &[(&'a str, &'a str)], changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let kept = set.iter().filter(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    kept.chain(changes.iter().filter(|(_, value)| !value.is_empty())).copied().collect()
}

#[test]
fn no_launcher_is_no_worker_env() {
    assert_eq!(read(&[]).unwrap(), None);
    // Variables that users set for all their programs are no launcher.
    assert_eq!(read(&[(MASTER_ADDR, "head"), (MASTER_PORT, "1"), (LOCAL_RANK, "0")]).unwrap(), None);
}

#[test]
fn every_launcher_of_the_table_is_detected_and_its_numbers_read() {
    for expected in LAUNCHERS {
        let Example { variables, numbers, .. } = expected.example();
        assert_eq!(launcher(variables), expected.name());
        let env = worker_env(variables);
        let local_rank = with(variables, local_rank_in).unwrap();
        assert_eq!((env.rank.0, env.world_size, local_rank), numbers, "{}", expected.name());
        assert_eq!(with(variables, known_workers_in).unwrap(), env.world_size, "{}", expected.name());
    }
}

#[test]
fn earlier_launchers_win() {
    let all: Vec<_> = LAUNCHERS.iter().flat_map(|launcher| launcher.example().variables).copied().collect();
    assert_eq!(launcher(&all), "torchrun");
    assert_eq!(launcher(&all[torchrun().len()..]), "Open MPI's mpirun");
    // srun with PMI sets PMI_RANK, too.
    assert_eq!(launcher(&changed(slurm(), &[("PMI_RANK", "5"), ("PMI_SIZE", "8")])), "srun");
    // A job script may set WORLD_SIZE for all programs.
    assert_eq!(launcher(&changed(slurm(), &[(WORLD_SIZE, "8")])), "srun");
}

/// Its job began with 2 workers on another node. The host of rank 0 may be gone, too.
#[test]
fn a_worker_of_a_node_that_comes_late_has_a_local_rank_and_no_place_in_a_fixed_group() {
    let late = [
        (RANK, "3"),
        (WORLD_SIZE, "2"),
        (LOCAL_RANK, "1"),
        (LOCAL_WORLD_SIZE, "2"),
        (MOST_WORKERS, "4"),
        (MASTER_ADDR, "no such host"),
        (MASTER_PORT, "29500"),
    ];
    assert_eq!(with(&late, local_rank_in).unwrap(), 1);
    assert_eq!(with(&late, known_workers_in).unwrap(), 4);
    let error = read(&late).unwrap_err().to_string();
    let expected = "RANK is 3; it must be below WORLD_SIZE=2: this node has come after the job's start, which only \
                    members of an elastic job can";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn local_ranks_need_no_other_variable() {
    assert_eq!(with(&[], local_rank_in).unwrap(), 0);
    assert_eq!(with(&[], known_workers_in).unwrap(), 1);
    assert_eq!(with(&[(LOCAL_RANK, "1")], local_rank_in).unwrap(), 0, "no launcher has set it");
    assert_eq!(with(&[(RANK, "1"), (WORLD_SIZE, "2")], local_rank_in).unwrap(), 1, "one host");
    let wrong = with(&[(RANK, "1"), (LOCAL_RANK, "x")], local_rank_in).unwrap_err().to_string();
    assert!(wrong.contains("LOCAL_RANK is `x`"), "{wrong}");
}

#[test]
fn a_shell_of_slurm_is_a_job_of_its_own() {
    for changes in [
        // `sbatch` and `salloc`.
        &[("SLURM_STEP_ID", ""), ("SLURM_STEP_NUM_TASKS", ""), ("SLURM_PROCID", "0")][..],
        // `salloc` with an interactive step, `srun --pty bash`.
        &[("SLURM_STEP_ID", "4294967290")],
        &[("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")],
    ] {
        assert_eq!(read(&changed(slurm(), changes)).unwrap(), None, "{changes:?}");
    }
}

/// Without the error, each process would train alone.
#[test]
fn processes_of_an_unknown_manager_are_refused_unless_there_is_one() {
    for vars in [
        &[("PMI_RANK", "0"), ("PMI_SIZE", "4")][..],
        &[("PMI_RANK", "3")],
        &[("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "prterun-head-17@1")],
        &[("PMIX_RANK", "1"), ("SLURM_NTASKS", "8")],
        &[("PALS_RANKID", "1"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")],
        &[("MV2_COMM_WORLD_RANK", "0"), ("MV2_COMM_WORLD_SIZE", "2")],
        &[("JSM_NAMESPACE_RANK", "0"), ("JSM_NAMESPACE_SIZE", "2")],
        &[("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "2")],
    ] {
        let error = read(vars).unwrap_err().to_string();
        let names = error.contains(&format!("variable {} is set", vars[0].0));
        assert!(names && error.contains("RANK=$") && error.contains("MASTER_ADDR"), "{error}");
        assert!(error.contains("train alone") && error.contains("unset"), "{error}");
    }
    for alone in [
        &[("PMI_RANK", "0"), ("PMI_SIZE", "1")][..],
        // A shell started by `srun --mpi=pmix --pty bash`.
        &[("PMIX_RANK", "0"), ("SLURM_STEP_ID", "3"), ("SLURM_STEP_NUM_TASKS", "1")],
        // Programs that are linked against PMIx leave these variables.
        &[("PMIX_NAMESPACE", "singleton")],
    ] {
        assert_eq!(read(alone).unwrap(), None, "{alone:?}");
    }
    // Rank and size set by hand, as the error message suggests.
    let by_hand = [("PMI_RANK", "1"), ("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "29500")];
    assert_eq!(worker_env(&by_hand).rank, Rank(1));
}

/// Kubeflow's pods expect torchrun, or `kolo launch`, to start their workers.
#[test]
fn a_node_of_several_that_starts_no_workers_is_refused() {
    let error = read(&[("PET_NNODES", "2"), ("PET_NODE_RANK", "1")]).unwrap_err().to_string();
    let expected = "the environment variable PET_NNODES is 2, so this node is one of several, but nothing has started \
                    its workers: each node would train alone. Put `kolo launch --` before the command, or unset \
                    PET_NNODES";
    assert_eq!(error, expected);
    assert_eq!(read(&[("PET_NNODES", "1"), ("PET_NODE_RANK", "0")]).unwrap(), None);
    let started = [("PET_NNODES", "2"), ("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "29500")];
    assert_eq!(worker_env(&started).rank, Rank(1));
}

#[test]
fn pods_of_an_indexed_job_are_workers_where_their_number_is_set() {
    assert_eq!(read(&[("JOB_COMPLETION_INDEX", "2")]).unwrap(), None, "each may have its own work");
    let pod = set("an Indexed Job");
    let error = read(&changed(pod, &[("MASTER_ADDR", "")])).unwrap_err().to_string();
    let expected = "the environment variable MASTER_ADDR is not set, and the workers are on several hosts; set it in \
                    the pods' manifest: MASTER_ADDR is pod 0 by its headless service, as in train-0.train";
    assert_eq!(error, expected);
    let error = read(&changed(pod, &[("JOB_COMPLETION_INDEX", "3")])).unwrap_err().to_string();
    assert!(error.ends_with("JOB_COMPLETION_INDEX is 3; it must be below WORLD_SIZE=3"), "{error}");
}

#[test]
fn given_endpoints_are_taken() {
    for set in [&torchrun()[..6], open_mpi(), slurm()] {
        let set = changed(set, &[(MASTER_ADDR, "127.0.0.9"), (MASTER_PORT, "1234")]);
        assert_eq!(worker_env(&set).endpoint.to_string(), "127.0.0.9:1234");
    }
    let by_hand = [(RANK, "0"), (WORLD_SIZE, "2"), (MASTER_PORT, "29500")];
    assert_eq!(
        worker_env(&by_hand).endpoint,
        Endpoint::from("127.0.0.1:29500".parse::<std::net::SocketAddr>().unwrap())
    );
    assert_eq!(
        worker_env(&[by_hand.as_slice(), &[(MASTER_ADDR, "::1")]].concat()).endpoint.to_string(),
        "[::1]:29500"
    );
}

#[test]
fn endpoints_are_derived_where_none_is_given() {
    for launcher in LAUNCHERS {
        let Example { variables, host, .. } = launcher.example();
        let endpoint = worker_env(variables).endpoint;
        assert!(endpoint.addresses().len() > 1 && endpoint.job().is_some(), "{endpoint}");
        for address in endpoint.addresses() {
            assert_eq!(address.ip().to_string(), host, "{endpoint}");
            assert!((20_000..30_000).contains(&address.port()) && address.port() != 29500, "{endpoint}");
        }
    }
    let one_node = changed(slurm(), &[("SLURM_STEP_NODELIST", "no-such-host")]);
    assert!(worker_env(&one_node).endpoint.addresses()[0].ip().is_loopback());
}

#[test]
fn all_ranks_derive_one_endpoint_and_other_jobs_another() {
    for launcher in LAUNCHERS {
        let Example { variables, job, .. } = launcher.example();
        let endpoint = |name, value| worker_env(&changed(variables, &[(name, value)])).endpoint;
        let rank = launcher.numbers().rank[0];
        assert_eq!(endpoint(rank, "0"), endpoint(rank, "1"), "{}", launcher.name());
        assert_ne!(endpoint(job, "1000"), endpoint(job, "1001"), "{job}");
        // Workers of a job before its requeue may still end.
        if variables.iter().any(|(name, _)| *name == "SLURM_JOB_ID") {
            assert_ne!(endpoint("SLURM_RESTART_COUNT", "0"), endpoint("SLURM_RESTART_COUNT", "1"));
        }
    }
    // After a restart the agents of different nodes count differently.
    let restarted = changed(torchrun(), &[("TORCHELASTIC_RESTART_COUNT", "1")]);
    assert_eq!(worker_env(torchrun()).endpoint, worker_env(&restarted).endpoint);
}

#[test]
fn a_group_of_one_needs_no_endpoint() {
    let alone = worker_env(&changed(
        torchrun(),
        &[("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "no such host")],
    ));
    assert_eq!(alone.endpoint.to_string(), "127.0.0.1:0");
}

#[test]
fn errors_name_the_variable() {
    let mpi = |changes: &[(&'static str, &'static str)]| changed(open_mpi(), changes);
    for (vars, names) in [
        (vec![(RANK, "1")], &["WORLD_SIZE", "RANK"][..]),
        (vec![(WORLD_SIZE, "2")], &["RANK", "WORLD_SIZE"]),
        (vec![(RANK, "x"), (WORLD_SIZE, "2")], &["RANK"]),
        (vec![(RANK, "-1"), (WORLD_SIZE, "2")], &["RANK"]),
        (vec![(RANK, "2"), (WORLD_SIZE, "2")], &["RANK", "WORLD_SIZE=2"]),
        (vec![(RANK, "0"), (WORLD_SIZE, "2")], &["MASTER_PORT", "kolo launch"]),
        (vec![(RANK, "0"), (WORLD_SIZE, "2"), (MASTER_PORT, "99999")], &["MASTER_PORT"]),
        (vec![(RANK, "0"), (WORLD_SIZE, "2"), (MASTER_PORT, "0")], &["MASTER_PORT"]),
        (mpi(&[("OMPI_COMM_WORLD_SIZE", "")]), &["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"]),
        (mpi(&[("OMPI_COMM_WORLD_RANK", "3")]), &["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE=3"]),
        (mpi(&[("OMPI_COMM_WORLD_LOCAL_SIZE", "2")]), &["MASTER_ADDR", "-x MASTER_ADDR", "-x MASTER_PORT"]),
        (
            changed(mpich(), &[("MPI_LOCALNRANKS", "1"), ("SLURM_JOB_ID", "")]),
            &["MASTER_ADDR", "-genv MASTER_ADDR"],
        ),
        (changed(mpich(), &[("SLURM_JOB_ID", "")]), &["MASTER_PORT", "-genv MASTER_PORT"]),
        (changed(slurm(), &[("SLURM_STEP_NODELIST", "a[1")]), &["SLURM_STEP_NODELIST", "MASTER_ADDR"]),
        (changed(slurm(), &[("SLURM_STEP_NODELIST", "")]), &["SLURM_STEP_NODELIST", "MASTER_ADDR"]),
        (
            changed(slurm(), &[("SLURM_STEP_NODELIST", "a b[1-2]")]),
            &["MASTER_ADDR is not set", "`a b1`", "before `srun`"],
        ),
        (changed(torchrun(), &[("MASTER_ADDR", "no such host")]), &["MASTER_ADDR is `no such host`"]),
        (changed(slurm(), &[("SLURM_STEP_NUM_TASKS", "many")]), &["SLURM_STEP_NUM_TASKS", "many"]),
    ] {
        let message = read(&vars).unwrap_err().to_string();
        for name in names {
            assert!(message.contains(name), "{vars:?}: {message}");
        }
    }
}

#[test]
fn more_processes_than_a_job_can_have_are_refused() {
    let large = [(RANK, "0"), (WORLD_SIZE, "99999999999"), (MASTER_ADDR, "127.0.0.1"), (MASTER_PORT, "1")];
    let error = read(&large).unwrap_err().to_string();
    assert!(error.contains("WORLD_SIZE is 99999999999; it must be at most 1048576"), "{error}");
    let servers = with(&[(SERVERS, "1048577")], |variables| variables.count_if_set(&[SERVERS]));
    assert!(servers.unwrap_err().to_string().contains("KOLO_SERVERS is 1048577"));
}
