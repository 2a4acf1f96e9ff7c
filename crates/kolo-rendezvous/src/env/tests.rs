//! What each launcher says, and what is made of it. The variables are those of real launchers: Open MPI 4.1.4, MPICH
//! 4.0.2, torchrun of PyTorch 2.11, Slurm 22.05.

use super::*;

type Set = &'static [(&'static str, &'static str)];

fn with<R>(vars: &[(&str, &str)], then: impl FnOnce(&Variables) -> R) -> R {
    let find = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string());
    then(&Variables(&find))
}

fn read(vars: &[(&str, &str)]) -> Result<Option<Place>, Error> {
    with(vars, Place::from_variables)
}

fn place(vars: &[(&str, &str)]) -> Place {
    read(vars).unwrap().unwrap()
}

fn launcher(vars: &[(&str, &str)]) -> &'static str {
    with(vars, |variables| launchers::of(variables).map_or("none", |launcher| launcher.name))
}

const TORCHRUN: Set = &[
    ("RANK", "3"),
    ("WORLD_SIZE", "4"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "2"),
    ("MASTER_ADDR", "127.0.0.1"),
    ("MASTER_PORT", "29500"),
    ("TORCHELASTIC_RUN_ID", "none"),
    ("TORCHELASTIC_USE_AGENT_STORE", "True"),
];
const OPEN_MPI: Set = &[
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "3"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "3"),
    ("OMPI_MCA_ess_base_jobid", "1641086977"),
    ("OMPI_MCA_orte_hnp_uri", "1641086976.0;tcp://192.0.2.2:56547"),
    ("PMIX_NAMESPACE", "1641086977"),
];
const MPICH: Set = &[
    ("PMI_RANK", "2"),
    ("PMI_SIZE", "3"),
    ("MPI_LOCALRANKID", "2"),
    ("MPI_LOCALNRANKS", "3"),
    ("SLURM_JOB_ID", "77"),
];
const SLURM: Set = &[
    ("SLURM_JOB_ID", "4711"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_PROCID", "5"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_NTASKS", "16"),
    ("SLURM_STEP_NUM_TASKS", "8"),
    ("SLURM_NODEID", "2"),
    ("SLURM_STEP_NODELIST", "127.0.0.[5-8]"),
];

/// The set with some variables changed, and without those that become empty.
fn changed<'a>(set: &[(&'a str, &'a str)], changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let kept = set.iter().filter(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    kept.chain(changes.iter().filter(|(_, value)| !value.is_empty())).copied().collect()
}

#[test]
fn no_launcher_is_no_place() {
    assert_eq!(read(&[]).unwrap(), None);
    // What users set for all their programs is no launcher.
    assert_eq!(read(&[(MASTER_ADDR, "head"), (MASTER_PORT, "1"), (LOCAL_RANK, "0")]).unwrap(), None);
}

#[test]
fn every_launcher_of_the_table_is_recognised() {
    let sets = [TORCHRUN, OPEN_MPI, MPICH, SLURM];
    assert_eq!(sets.len(), LAUNCHERS.len());
    for (set, expected) in sets.iter().zip(&LAUNCHERS) {
        assert_eq!(launcher(set), expected.name);
    }
}

#[test]
fn ranks_are_read() {
    for (set, rank, world_size, local_rank) in
        [(TORCHRUN, 3, 4, 1), (OPEN_MPI, 1, 3, 1), (MPICH, 2, 3, 2), (SLURM, 5, 8, 1)]
    {
        let place = place(set);
        assert_eq!((place.rank, place.world_size, place.local_rank), (Rank(rank), world_size, local_rank));
    }
}

#[test]
fn earlier_launchers_win() {
    let all = [TORCHRUN, OPEN_MPI, MPICH, SLURM].concat();
    assert_eq!(launcher(&all), "torchrun");
    assert_eq!(launcher(&all[TORCHRUN.len()..]), "Open MPI's mpirun");
    // srun with PMI sets PMI_RANK, too.
    assert_eq!(launcher(&changed(SLURM, &[("PMI_RANK", "5"), ("PMI_SIZE", "8")])), "srun");
    // A job script may set WORLD_SIZE for all.
    assert_eq!(launcher(&changed(SLURM, &[(WORLD_SIZE, "8")])), "srun");
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
        assert_eq!(read(&changed(SLURM, changes)).unwrap(), None, "{changes:?}");
    }
}

#[test]
fn given_places_are_taken() {
    for (set, several) in [(&TORCHRUN[..6], false), (OPEN_MPI, false), (SLURM, true)] {
        let set = changed(set, &[(MASTER_ADDR, "127.0.0.9"), (MASTER_PORT, "1234")]);
        assert_eq!(place(&set).master.to_string(), "127.0.0.9:1234", "{several}");
    }
    let by_hand = [(RANK, "0"), (WORLD_SIZE, "2"), (MASTER_PORT, "29500")];
    assert_eq!(
        place(&by_hand).master,
        Master::from("127.0.0.1:29500".parse::<std::net::SocketAddr>().unwrap())
    );
    assert_eq!(
        place(&[by_hand.as_slice(), &[(MASTER_ADDR, "::1")]].concat()).master.to_string(),
        "[::1]:29500"
    );
}

#[test]
fn places_are_derived_where_none_is_given() {
    for (set, host) in
        [(TORCHRUN, "127.0.0.1"), (OPEN_MPI, "127.0.0.1"), (MPICH, "127.0.0.1"), (SLURM, "127.0.0.5")]
    {
        let master = place(set).master;
        assert!(master.places().len() > 1 && master.job().is_some(), "{master}");
        for at in master.places() {
            assert_eq!(at.ip().to_string(), host, "{master}");
            assert!((20_000..30_000).contains(&at.port()) && at.port() != 29500, "{master}");
        }
    }
    let one_node = changed(SLURM, &[("SLURM_STEP_NODELIST", "no-such-host")]);
    assert!(place(&one_node).master.places()[0].ip().is_loopback());
}

#[test]
fn all_ranks_derive_the_same_and_other_jobs_another() {
    for (set, rank, job) in [
        (TORCHRUN, "RANK", "MASTER_PORT"),
        (OPEN_MPI, "OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE"),
        (MPICH, "PMI_RANK", "SLURM_JOB_ID"),
        (SLURM, "SLURM_PROCID", "SLURM_STEP_ID"),
    ] {
        let master = |name, value| place(&changed(set, &[(name, value)])).master;
        assert_eq!(master(rank, "0"), master(rank, "1"));
        assert_ne!(master(job, "1000"), master(job, "1001"), "{job}");
    }
    // After a restart the agents of different nodes count differently.
    let restarted = changed(TORCHRUN, &[("TORCHELASTIC_RESTART_COUNT", "1")]);
    assert_eq!(place(TORCHRUN).master, place(&restarted).master);
}

#[test]
fn a_group_of_one_meets_nobody() {
    let alone =
        place(&changed(TORCHRUN, &[("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "no such host")]));
    assert_eq!(alone.master.to_string(), "127.0.0.1:0");
}

#[test]
fn errors_name_the_variable() {
    let mpi = |changes: &[(&'static str, &'static str)]| changed(OPEN_MPI, changes);
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
            changed(MPICH, &[("MPI_LOCALNRANKS", "1"), ("SLURM_JOB_ID", "")]),
            &["MASTER_ADDR", "-genv MASTER_ADDR"],
        ),
        (changed(MPICH, &[("SLURM_JOB_ID", "")]), &["MASTER_PORT", "-genv MASTER_PORT"]),
        (changed(SLURM, &[("SLURM_STEP_NODELIST", "a[1")]), &["SLURM_STEP_NODELIST", "MASTER_ADDR"]),
        (changed(SLURM, &[("SLURM_STEP_NODELIST", "")]), &["SLURM_STEP_NODELIST", "MASTER_ADDR"]),
        (
            changed(SLURM, &[("SLURM_STEP_NODELIST", "a b[1-2]")]),
            &["MASTER_ADDR is not set", "`a b1`", "before `srun`"],
        ),
        (changed(TORCHRUN, &[("MASTER_ADDR", "no such host")]), &["MASTER_ADDR is `no such host`"]),
        (changed(SLURM, &[("SLURM_STEP_NUM_TASKS", "many")]), &["SLURM_STEP_NUM_TASKS", "many"]),
    ] {
        let message = read(&vars).unwrap_err().to_string();
        for name in names {
            assert!(message.contains(name), "{vars:?}: {message}");
        }
    }
}
