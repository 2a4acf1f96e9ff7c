//! The output of `kolo verify`: a row for each run, then the result.

use kolo_comm::schedule::words::counted;
use kolo_program::Failure;
use kolo_program::output::{note, say};

use super::axes::Run;
use super::cause::cause;
use super::compare::Outcome;

/// A table that grows with each run.
pub(super) struct Table {
    rows: usize,
    left_out: usize,
    /// True to print objects instead.
    json: bool,
}

impl Table {
    pub(super) fn begin(runs: &[Run], json: bool) -> Self {
        note(&format!("{} of the same job, each compared with the first one", counted(runs.len(), "run")));
        if !json {
            say!(
                "{:>7}  {:9}  {:16}  {:>10}  {:>5}  compared",
                "workers",
                "transport",
                "algorithm",
                "bucket cap",
                "steps"
            );
        }
        Table { rows: 0, left_out: 0, json }
    }

    pub(super) fn row(&mut self, outcome: &Outcome) {
        let Outcome { run, trace, difference } = outcome;
        let compared = match difference {
            _ if self.rows == 0 => format!("the first one, {} a step", counted(trace.start.shards, "shard")),
            Some(difference) if run.resumed_after.is_some() => {
                format!("differs in {difference}, {}", resumed(run))
            }
            Some(difference) => format!("differs in {difference}"),
            None if run.again => "the same bits, repeated".into(),
            None if run.resumed_after.is_some() => format!("the same bits, {}", resumed(run)),
            None if run.tuned => "the same bits, each step by another setting that `--tune` tries".into(),
            None if run.divided.is_some() => {
                format!("the same bits, with divided state (`--shard {}`)", run.divided.unwrap_or_default())
            }
            None if run.recomputed => "the same bits, with `--activation-checkpointing`".into(),
            None if run.offloaded => "the same bits, with `--offload`".into(),
            None if run.servers > 0 => format!("the same bits, with {}", counted(run.servers, "server")),
            None => "the same bits".into(),
        };
        let same = (self.rows > 0).then_some(difference.is_none());
        self.print(run, trace.start.transport.as_str(), trace.steps.len(), same, &compared);
        self.rows += 1;
    }

    /// Prints a run that is left out, with the reason.
    pub(super) fn left_out(&mut self, run: &Run, why: &str) {
        self.left_out += 1;
        self.print(run, run.transport.as_deref().unwrap_or("-"), 0, None, &format!("left out: {why}"));
    }

    /// Prints a run. `same` is `None` if it was compared with none.
    fn print(&self, run: &Run, transport: &str, steps: usize, same: Option<bool>, compared: &str) {
        if self.json {
            say!("{}", object(run, transport, steps, same, compared));
            return;
        }
        let (cap, algorithm) = (run.cap, run.algorithm.as_deref().unwrap_or("-"));
        let workers = match run.servers {
            0 => run.workers.to_string(),
            servers => format!("{} + {servers}", run.workers),
        };
        say!("{workers:>7}  {transport:9}  {algorithm:16}  {cap:>6} MiB  {steps:>5}  {compared}");
    }

    /// Prints that all runs agree; returns an error with the likely cause if one differs.
    pub(super) fn end(&self, outcomes: &[Outcome]) -> Result<(), Failure> {
        let differing = outcomes.iter().find(|outcome| outcome.difference.is_some());
        let (Some(Outcome { run, difference: Some(difference), .. }), Some(cause)) =
            (differing, cause(outcomes))
        else {
            let words = ended(outcomes.len(), self.left_out);
            if self.json {
                note(&words);
            } else {
                say!("{words}");
            }
            return Ok(());
        };
        Err(Failure::work(format!(
            "{} differs from the first run in {difference}\nlikely cause: {cause}",
            describe(run)
        )))
    }
}

/// Describes runs that all agree, of a plan from which some were left out.
fn ended(compared: usize, left_out: usize) -> String {
    match left_out {
        0 => format!("all {} went through the same bits", counted(compared, "run")),
        _ => format!(
            "{compared} of {} went through the same bits, and {left_out} {} left out",
            counted(compared + left_out, "run"),
            if left_out == 1 { "was" } else { "were" }
        ),
    }
}

/// Returns a run as a line of JSON.
fn object(run: &Run, transport: &str, steps: usize, same: Option<bool>, compared: &str) -> serde_json::Value {
    serde_json::json!({
        "workers": run.workers,
        "servers": run.servers,
        "transport": transport,
        "algorithm": run.algorithm,
        "bucket_cap_mib": run.cap,
        "steps": steps,
        "same": same,
        "compared": compared,
    })
}

pub(super) fn describe(run: &Run) -> String {
    let mut text = format!("the run with {}", counted(run.workers, "worker"));
    if run.servers > 0 {
        text += &format!(" and {}", counted(run.servers, "server"));
    }
    for part in [&run.transport, &run.algorithm].into_iter().flatten() {
        text += &format!(", {part}");
    }
    if run.again {
        text += ", repeated,";
    }
    if run.resumed_after.is_some() {
        text += &format!(", {},", resumed(run));
    }
    if run.tuned {
        text += ", tuned,";
    }
    if let Some(state) = run.divided {
        text += &format!(", its state divided (`--shard {state}`),");
    }
    if run.recomputed {
        text += ", its activations recomputed,";
    }
    if run.offloaded {
        text += ", its optimizer's state in a file,";
    }
    text + &format!(", buckets of {} MiB", run.cap)
}

/// Describes the resumption of a run that is cut.
fn resumed(run: &Run) -> String {
    let steps = run.resumed_after.unwrap_or(0);
    format!("resumed from a checkpoint after {steps} {}", if steps == 1 { "step" } else { "steps" })
}
