//! `kolo plan step`: predicts a step on any number of workers.

mod advise;
mod choice_options;
mod cluster_options;
mod failure_options;
mod origin;
mod other_profiles;
mod plot;
mod profile_options;
mod run_profile;

use std::path::PathBuf;

use clap::Args;
use kolo::Failure;
use kolo_plan::step::{Advice, Disturbances, LoadTable, Outlook, outlook, predict, table};
use kolo_program::output::{print, print_json};
use serde::Serialize;

use self::choice_options::ChoiceOptions;
use self::cluster_options::ClusterOptions;
use self::failure_options::FailureOptions;
use self::profile_options::ProfileOptions;
use crate::commands::plan::numbers::positive;

/// Predict the time of a step on any number of workers, from a step of one worker.
///
/// Each worker computes as long as one worker alone, so the global batch grows with their number; workers
/// that share cores compute longer. Buckets are ready at the measured times, or one after another in the
/// backward pass. The prediction simulates the schedules that Kolo runs.
#[derive(Args)]
#[command(after_help = table::links())]
pub(crate) struct Step {
    #[command(flatten)]
    profile: ProfileOptions,
    #[command(flatten)]
    cluster: ClusterOptions,
    #[command(flatten)]
    choices: ChoiceOptions,
    /// Numbers of workers
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_values_t = [1, 2, 4, 8, 16, 64, 256, 1024])]
    workers: Vec<usize>,
    /// Standard deviation of a worker's computing time in percent. All workers wait for the slowest
    #[arg(long, value_name = "PERCENT", value_parser = positive)]
    spread: Option<f64>,
    #[command(flatten)]
    failures: FailureOptions,
    /// Also predict, for this many workers, the gain of other buckets, algorithms, reductions,
    /// accumulation, servers, and rarer or later synchronization
    #[arg(long, value_name = "WORKERS")]
    advise: Option<usize>,
    /// Draw step time and efficiency by number of workers into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Output of `--advise --json`.
#[derive(Serialize)]
struct Report {
    steps: Vec<Outlook>,
    advice: Vec<Advice>,
}

impl Step {
    /// Refuses several profiles without `--advise`, and any `--reduction` for profiles as measured.
    fn check_comparison(&self) -> Result<(), Failure> {
        if !self.profile.are_several() {
            return Ok(());
        }
        if self.advise.is_none() {
            return Err(Failure::input("--advise compares several profiles; give it a number of workers"));
        }
        if self.choices.reduction.is_some() {
            return Err(Failure::input(
                "--reduction is not applied to several profiles; measure each with it: kolo bench profile --reduction",
            ));
        }
        Ok(())
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.workers.contains(&0) || self.advise == Some(0) {
            return Err(Failure::input("0 workers: a job has at least one"));
        }
        self.check_comparison()?;
        let mut place = self.cluster.place()?;
        let most = self.workers.iter().copied().max().unwrap_or(1);
        let origin = self.profile.origin(place.caps(most))?;
        self.cluster.complete(&mut place, origin.cores);
        let (profile, choices) = self.choices.choose(&origin)?;
        let job = self.choices.recipe(&origin);
        let spread = self.spread.map_or(0.0, |percent| percent / 100.0);
        let disturbances = Disturbances { spread, failures: self.failures.costs() };
        let told = |&workers: &usize| {
            let prediction = predict(&profile, &LoadTable::new(place.of(workers)?), &choices);
            Ok(outlook(prediction, &profile, &disturbances))
        };
        let rows = self.workers.iter().map(told).collect::<Result<Vec<Outlook>, Failure>>()?;
        if let Some(file) = &self.plot {
            plot::draw(&rows, file)?;
        }
        let advised =
            self.advise.map(|workers| advise::all(workers, &origin, &job, &profile, &choices, &place));
        let advised = advised.transpose()?;
        if self.json {
            return match advised {
                None => print_json(&rows),
                Some((_, advice)) => print_json(&Report { steps: rows, advice }),
            };
        }
        let buckets =
            choices.caps.map_or_else(|| profile.buckets.len(), |caps| profile.cut(caps).buckets.len());
        let mut text = table::steps(&profile, origin.shards, buckets, &rows);
        if let (Some(workers), Some((now, advice))) = (self.advise, advised) {
            text += &table::advice(workers, now, &advice);
        }
        print(&text)
    }
}
