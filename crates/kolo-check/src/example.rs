//! A job without findings, which tests modify.

use std::path::PathBuf;

use crate::facts::{Facts, RankFacts};
use crate::probes::{
    Clock, Cpu, DataFacts, Disk, FolderFacts, Host, HugePages, LinkFacts, Memory, OpenFiles, Processor,
    Program, SamplesRead,
};
use crate::settings::{
    BatchSettings, CheckpointSettings, Exchange, Normalization, RateSettings, Schedule, Settings, Work,
};
use crate::trial::{Trial, TrialStep};

/// Settings of `kolo train` without options, for a number of workers.
fn settings(workers: usize) -> Settings {
    let (global, epoch_steps) = (32 * workers, 10_000u64.div_ceil(32 * workers as u64));
    Settings {
        model: "small".into(),
        normalization: Normalization::PerShard,
        optimizer: "sgd".into(),
        rate: RateSettings { top: 0.1, is_scaled: false, warmup_steps: 100, schedule: Schedule::ToZero },
        batch: BatchSettings { shard: 32, global },
        work: Some(Work {
            samples: 10_000,
            test_samples: 2_000,
            epochs: 8,
            epoch_steps,
            planned_steps: 8 * epoch_steps,
            step_limit: None,
            steps: 8 * epoch_steps,
            last_rate: 1e-7,
        }),
        shares: vec![1; workers],
        has_weights: false,
        straggler: "warn".into(),
        exchange: Exchange::WithinStep,
        checkpoints: CheckpointSettings { epochs: 1, steps: None, keep: 3, best: false },
        patience: None,
        seed: 0,
        same_run: None,
        is_elastic: true,
        resumes: false,
        may_continue: false,
        folder: PathBuf::from("runs/0001-small-fashion-mnist-small"),
    }
}

fn rank(rank: usize) -> RankFacts {
    let disk = Disk { free: 50_000_000_000, write_rate: 4e8 };
    RankFacts {
        is_server: false,
        host: Host { name: "a".into(), boot: "boot of a".into() },
        settings: "model = \"small\"\nseed = 0\n".into(),
        program: Program { version: "0.1.0".into(), sha256: Some("0123".into()) },
        processor: Processor::of("AMD EPYC 9654 with AVX2"),
        cpu: Cpu { allowed: (0..8).collect(), quotas: Vec::new() },
        clock: Clock { ahead: 1e-4, uncertainty: 1e-5 },
        memory: Memory { available: 16_000_000_000, limits: Vec::new() },
        open_files: OpenFiles { limit: Some(20_000), used: 25, launcher: None },
        huge_pages: Some(HugePages::Asked),
        folder: FolderFacts {
            exists: false,
            disk: (rank == 0).then_some(Ok(disk)),
            is_shared: Some(true),
            writer: None,
        },
        data: Ok(DataFacts {
            samples: 10_000,
            test_samples: 2_000,
            fingerprint: Some("ab".into()),
            read: SamplesRead { read: 32, of: 32 },
            warnings: Vec::new(),
        }),
        trial: Trial::Taken(TrialStep {
            gradient_bytes: 310_000,
            checkpoint_bytes: 640_000,
            shard_seconds: 0.008,
            usual_shard_seconds: 0.008,
            update_seconds: 0.0002,
            peak_bytes: 150_000_000,
        }),
        checkpoint: None,
    }
}

pub(crate) fn one_host(workers: usize) -> Facts {
    Facts {
        settings: settings(workers),
        ranks: (0..workers).map(rank).collect(),
        links: Vec::new(),
        nodes: 1,
    }
}

/// One worker on each of `count` hosts, `a`, `b` and so on, over links of 10 Gbit/s.
pub(crate) fn hosts(count: usize) -> Facts {
    let mut facts = one_host(count);
    facts.nodes = count;
    for (name, rank) in ('a'..).zip(&mut facts.ranks) {
        rank.host = Host { name: name.into(), boot: format!("boot of {name}") };
    }
    for from in 0..count {
        let link = |to| LinkFacts { from, to, latency: 30e-6, there: 1.1e9, back: 1.15e9, both: 1e9 };
        facts.links.extend((from + 1..count).map(link));
    }
    facts
}

pub(crate) fn work(facts: &mut Facts) -> &mut Work {
    facts.settings.work.as_mut().expect("the example's data can be read")
}

/// Returns the trial step of a rank, to be modified.
pub(crate) fn trial(facts: &mut Facts, rank: usize) -> &mut TrialStep {
    match &mut facts.ranks[rank].trial {
        Trial::Taken(step) => step,
        other => panic!("the example's trials are taken, not {other:?}"),
    }
}
