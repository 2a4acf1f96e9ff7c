//! What a worker learns of its place.

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
    let ended = Trial::new(3, NOTE_ENV).run();
    assert_eq!(ended.code, 0, "{}", ended.err);
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
    let ended = trial.run();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let seen = variables(&ended, 3);
    assert_eq!((seen["LOCAL_RANK"].as_str(), seen["WORLD_SIZE"].as_str()), ("1", "4"));
    assert_eq!((seen["GROUP_RANK"].as_str(), seen["MASTER_PORT"].as_str()), ("1", "29500"));
}

#[test]
fn standard_input_is_empty() {
    assert_eq!(Trial::new(2, "cat").run().code, 0);
}
