//! Predictions as tables for a terminal.

use kolo_schedule::words::counted;

use crate::LINKS;
use crate::step::{Advice, Keeps, Outlook, StepProfile, best, not_worth_from};

/// Describes the steps of a job; `shards` is the number that one worker computes in a step, if that is known.
pub fn steps(profile: &StepProfile, shards: Option<usize>, buckets: usize, rows: &[Outlook]) -> String {
    let mut text = format!(
        "one worker: {:.1} ms a step{}; {:.1} MB of gradients in {}\n\n",
        profile.alone() * 1e3,
        shards.map_or(String::new(), |shards| format!(" of {}", counted(shards, "shard"))),
        profile.bytes() / 1e6,
        counted(buckets, "bucket")
    );
    let disturbed = rows.iter().any(|row| row.straggling > 0.0 || row.goodput_with_restarts.is_some());
    text += &format!(
        "{:>8}{:>12}{:>12}{:>12}{:>12}{}  all-reduce\n",
        "workers",
        "step, ms",
        "exposed, ms",
        "wire, ms",
        "efficiency",
        if disturbed { "  slowest, ms     goodput  restarting     speedup" } else { "" }
    );
    for row in rows {
        let told = &row.prediction;
        let [step, exposed, wire] = [told.seconds, told.exposed, told.wire].map(|seconds| seconds * 1e3);
        text += &format!(
            "{:>8}{step:>12.1}{exposed:>12.1}{wire:>12.1}{:>10.1} %{}  {}\n",
            told.workers,
            told.efficiency * 100.0,
            if disturbed { disturbed_columns(row) } else { String::new() },
            told.algorithm
        );
    }
    if let Some(workers) = not_worth_from(rows) {
        text += &format!(
            "\nFrom {} on another one brings less than half of what one alone does.\n",
            counted(workers, "worker")
        );
    }
    text
}

/// Returns the columns of stragglers and failures: the wait for the slowest worker, the goodput of an elastic
/// job and of one that restarts, and the speedup.
fn disturbed_columns(row: &Outlook) -> String {
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let restarting = row.goodput_with_restarts.map(percent).unwrap_or_default();
    let (straggling, goodput, speedup) = (row.straggling * 1e3, percent(row.goodput), row.speedup);
    format!("{straggling:>13.1}{goodput:>12}{restarting:>12}{speedup:>11.1}x")
}

/// Describes the advice for a job of so many workers, whose step takes `now` seconds.
pub fn advice(workers: usize, now: f64, advice: &[Advice]) -> String {
    let (workers, ms) = (counted(workers, "worker"), now * 1e3);
    let mut text = format!("\n{workers}, {ms:.1} ms a step as it is; what a change would bring:\n\n");
    text += &format!("{:>12}{:>12}  {:>10}  {:13}options\n", "step, ms", "efficiency", "samples", "keeps");
    for told in advice {
        let keeps = match told.keeps {
            Keeps::Bits => "bits",
            Keeps::Gradients => "gradients",
            Keeps::Nothing => "-",
        };
        text += &format!(
            "{:>12.1}{:>10.1} %  {:>9.2}x  {keeps:13}{}{}\n",
            told.prediction.seconds * 1e3,
            told.prediction.efficiency * 100.0,
            told.gain,
            told.options,
            if told.is_worth_it { "" } else { "  (not worth it)" }
        );
    }
    if advice.iter().any(|told| told.options.contains("--reduction ")) {
        text += "\nThe time to compress is counted only in profiles measured with the reduction (kolo bench profile \
                 --reduction);\nothers look better here than they are, above all over fast links.\n";
    }
    let named = |keeps| {
        best(advice, keeps)
            .map_or("as it is".into(), |told| format!("{} ({:.2}x the samples)", told.options, told.gain))
    };
    text += &format!("\nThe best that keeps the bits: {}.\n", named(Keeps::Bits));
    text += &format!(
        "The best that keeps the gradients exact, with another global batch: {}.\n",
        named(Keeps::Gradients)
    );
    text + &format!("The best of all, if accuracy allows it: {}.\n", named(Keeps::Nothing))
}

/// Describes all known links.
pub fn links() -> String {
    let mut text = String::from("Links, each way:\n");
    for link in LINKS {
        text += &format!(
            "  {:8} {:>6} Gbit/s × {:.2}, {:>4.1} µs, {} µs a message: {}\n",
            link.name,
            (link.gigabits * 10.0).round() / 10.0,
            link.payload,
            link.latency * 1e6,
            link.per_message * 1e6,
            link.source
        );
    }
    text
}
