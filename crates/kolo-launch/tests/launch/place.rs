//! Tests of the settings that a worker receives.

use std::collections::HashMap;
use std::fs;

use crate::harness::{Ended, Trial};

fn variables(ended: &Ended, rank: usize) -> HashMap<String, String> {
    let text = fs::read_to_string(ended.path(&format!("env.{rank}"))).unwrap();
    text.lines().filter_map(|line| line.split_once('=')).map(|(n, v)| (n.into(), v.into())).collect()
}

const NOTE_ENV: &str = r#"env > "$DIR/env.$RANK""#;

#[test]
fn every_worker_knows_its_rank_and_all_the_same_meeting_place() {
    let ended = Trial::new(3, NOTE_ENV).ends_with(0);
    let all: Vec<_> = (0..3).map(|rank| variables(&ended, rank)).collect();
    for (rank, seen) in all.iter().enumerate() {
        for (name, value) in [
            ("RANK", rank.to_string()),
            ("LOCAL_RANK", rank.to_string()),
            ("ROLE_RANK", rank.to_string()),
            ("WORLD_SIZE", "3".into()),
            ("LOCAL_WORLD_SIZE", "3".into()),
            ("GROUP_RANK", "0".into()),
            ("GROUP_WORLD_SIZE", "1".into()),
            ("MASTER_ADDR", "127.0.0.1".into()),
            ("TORCHELASTIC_RESTART_COUNT", "0".into()),
            ("OMP_NUM_THREADS", "1".into()),
        ] {
            assert_eq!(seen.get(name), Some(&value), "{name} of rank {rank}");
        }
        for name in ["MASTER_PORT", "TORCHELASTIC_RUN_ID"] {
            assert_eq!(seen[name], all[0][name], "{name} of rank {rank}");
        }
    }
    assert_ne!(all[0]["MASTER_PORT"].parse::<u16>().unwrap(), 0);
    assert_ne!(all[0]["TORCHELASTIC_ERROR_FILE"], all[1]["TORCHELASTIC_ERROR_FILE"]);
    ended.left_nothing(&[]);
}

#[test]
fn a_second_node_counts_on() {
    let trial = Trial::new(2, NOTE_ENV).set("nnodes", 2).set("node_rank", 1).set("port", 29500);
    let ended = trial.ends_with(0);
    let seen = variables(&ended, 3);
    assert_eq!((seen["LOCAL_RANK"].as_str(), seen["WORLD_SIZE"].as_str()), ("1", "4"));
    assert_eq!((seen["GROUP_RANK"].as_str(), seen["MASTER_PORT"].as_str()), ("1", "29500"));
}

#[test]
fn workers_of_one_job_have_one_token_that_nothing_shows() {
    let script = format!(r#"{NOTE_ENV}; tr '\0' ' ' < /proc/$PPID/cmdline > "$DIR/cmdline""#);
    let tokens = [0, 1].map(|_| {
        let ended = Trial::new(2, &script).ends_with(0);
        let token = variables(&ended, 0).remove("KOLO_TOKEN").unwrap();
        assert_eq!(variables(&ended, 1)["KOLO_TOKEN"], token);
        let cmdline = fs::read_to_string(ended.path("cmdline")).unwrap();
        assert!(!cmdline.is_empty() && !format!("{cmdline}{}{}", ended.out, ended.err).contains(&token));
        token
    });
    assert_ne!(tokens[0], tokens[1]);
}

#[test]
fn a_token_that_is_given_is_passed_on() {
    let ended = Trial::new(1, NOTE_ENV).after("export KOLO_TOKEN='given by the user'").run();
    assert_eq!(variables(&ended, 0)["KOLO_TOKEN"], "given by the user", "{}", ended.err);
    let folder = tempfile::tempdir().unwrap();
    let file = crate::harness::file(folder.path(), "token", "in a file, for all nodes\n", false);
    let trial = Trial::new(1, NOTE_ENV).set("nnodes", 2).set("node_rank", 1).set("port", 29500);
    let trial = trial.set("master_addr", "192.0.2.1").set("token_file", file.as_str());
    let ended = trial.after("export KOLO_TOKEN='given by the user'").run();
    let seen = variables(&ended, 1);
    assert_eq!((seen.get("KOLO_TOKEN"), &seen["KOLO_TOKEN_FILE"]), (None, &file), "{}", ended.err);
}

#[test]
fn standard_input_is_empty() {
    assert_eq!(Trial::new(2, "cat").run().code, 0);
}

#[test]
fn a_folder_for_temporary_files_that_is_away_is_no_obstacle() {
    let ended = Trial::new(2, NOTE_ENV).after("export TMPDIR=/no/such/folder").ends_with(0);
    let file = &variables(&ended, 1)["TORCHELASTIC_ERROR_FILE"];
    assert!(["/tmp", "/var/tmp", "/dev/shm"].iter().any(|folder| file.starts_with(folder)), "{file}");
}

/// Returns the cores in the kernel's list of them: `0-2,5`.
fn cores(list: &str) -> Vec<usize> {
    let run = |run: &str| {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        first.parse::<usize>().unwrap()..=last.parse().unwrap()
    };
    list.trim().split(',').flat_map(run).collect()
}

#[test]
fn bound_workers_share_out_the_cores_of_the_launcher() {
    let allowed =
        |status: &str| cores(status.split("Cpus_allowed_list:").nth(1).unwrap().lines().next().unwrap());
    let own = allowed(&std::fs::read_to_string("/proc/self/status").unwrap());
    let script = "echo $(grep Cpus_allowed_list: /proc/self/status)";
    let ended = Trial::new(2, script).ends_with(0);
    assert!(ended.lines().iter().all(|line| allowed(line) == own), "{}", ended.out);
    let ended = Trial::new(2, script).set("bind", "core").ends_with(0);
    let bound: Vec<Vec<usize>> = ended.lines().iter().map(|line| allowed(line)).collect();
    match own.len() {
        1 => assert_eq!(bound, [own.clone(), own]),
        _ => assert_eq!(bound.concat(), own, "{}", ended.out),
    }
    assert!(ended.err.contains("are bound (--bind core): local rank 0 to core"), "{}", ended.err);
}
