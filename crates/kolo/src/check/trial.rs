//! A shard's step in a process of its own: a lack of memory, say, ends that process and not the check.

use std::io::{BufRead, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kolo_burn_train::peak_bytes;
use kolo_check::{Trial, TrialStep};
use kolo_comm::{Group, env};
use kolo_data::{AugmentKey, Part};
use kolo_ddp::checkpoint::{self, Position};
use kolo_models::{self as models, Blueprint, Stepper};
use kolo_recipe::Recipe;
use kolo_run_folder::percentile;
use serde::{Deserialize, Serialize};

use kolo::{Failure, with_precision};
use kolo_program::output::print_json;

/// Environment variable of a process that tries a step. The job is a line on its input, and the times are
/// JSON on its output. The process ends when its input does.
pub(crate) const TRIAL: &str = "KOLO_CHECK_TRIAL";

/// Fewest timed steps, after the first.
const FEWEST: usize = 3;
/// Time for which short steps are repeated, so that disturbances of the host affect few of them.
const ENOUGH: Duration = Duration::from_millis(400);
/// Time after which no other step begins.
const LONG: Duration = Duration::from_secs(20);

#[derive(Serialize, Deserialize)]
pub(super) struct TrialJob {
    /// The recipe, as the text of a `config.toml`.
    pub(super) recipe: String,
    /// Shards that go through a step together.
    pub(super) together: usize,
    /// Sleep of each shard, if this rank is slowed down.
    pub(super) pause: Duration,
}

impl TrialJob {
    /// Tries the step in a process of its own.
    pub(super) fn run(&self) -> Trial {
        let failed = |how: String| Trial::Failed { how, was_killed: false, words: String::new() };
        let started = self.start().and_then(|(mut child, job)| {
            let mut input = child.stdin.take();
            if let Some(input) = &mut input {
                input.write_all(&job)?;
            }
            // The open input tells the child that its parent waits for it.
            let ended = child.wait_with_output();
            drop(input);
            ended
        });
        started.map_or_else(|error| failed(format!("cannot be tried: {error}")), |output| outcome(&output))
    }

    fn start(&self) -> std::io::Result<(Child, Vec<u8>)> {
        let mut job = serde_json::to_vec(self)?;
        job.push(b'\n');
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("check").env(TRIAL, "1").stdin(Stdio::piped());
        // The process is no worker, and its failure is none of the job.
        for name in [env::RANK, env::WORLD_SIZE, env::ERROR_FILE] {
            command.env_remove(name);
        }
        Ok((command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?, job))
    }
}

fn outcome(output: &Output) -> Trial {
    use std::os::unix::process::ExitStatusExt;
    if output.status.success()
        && let Ok(step) = serde_json::from_slice(&output.stdout)
    {
        return Trial::Taken(step);
    }
    let signal = output.status.signal();
    let how = match signal {
        Some(signal) => format!("was killed by signal {signal}"),
        None => format!("has failed with exit code {}", output.status.code().unwrap_or_default()),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let words = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().into();
    Trial::Failed { how, was_killed: signal.is_some(), words }
}

/// Tries a step, as the process of a trial.
pub(crate) fn try_as_told() -> Result<(), Failure> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let job: TrialJob = serde_json::from_str(&line).map_err(Failure::work)?;
    // When the input ends, the parent no longer waits.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        std::process::exit(1);
    });
    print_json(&take(&job)?)
}

fn take(job: &TrialJob) -> Result<TrialStep, Failure> {
    let recipe: Recipe = toml::from_str(&job.recipe).map_err(Failure::input)?;
    let (images, device) = (recipe.open_data()?, kolo_burn_train::device(&recipe, 0)?.autodiff());
    let blueprint = Blueprint::of(&recipe, images.shape(), &device);
    let config = kolo_ddp::Config {
        shards: Some(1),
        loss_scaling: recipe.precision.loss_scaling()?,
        // All of a step's work is done when it ends.
        forward_overlap: false,
        verify_every: 0,
        ..kolo_ddp::Config::default()
    };
    let model = models::find(&recipe.model)?;
    let mut stepper = model.stepper(Group::alone(), &blueprint, &config, recipe.optimizer.build()?)?;
    let count = (recipe.batch_size * job.together).min(images.samples(Part::Train));
    let indices: Vec<usize> = (0..count).collect();
    let augment = recipe.augment.then_some(AugmentKey { seed: recipe.seed, epoch: 0 });
    let precision = kolo_burn_train::precision(&recipe.precision)?;
    let ([shard_seconds, usual_shard_seconds], update_seconds) = fastest(|| {
        let began = Instant::now();
        let batch = images.batch(Part::Train, &indices, augment)?;
        std::thread::sleep(job.pause * job.together as u32);
        // Without a learning rate no trial diverges.
        let report = with_precision(precision, || stepper.step(batch, 0.0))?;
        let update = report.times.optimizer;
        Ok((began.elapsed().saturating_sub(update) / job.together as u32, update))
    })?;
    let peak_bytes = peak_bytes();
    let (gradient_bytes, checkpoint_bytes) = bytes(&*stepper)?;
    Ok(TrialStep {
        gradient_bytes,
        checkpoint_bytes,
        shard_seconds,
        usual_shard_seconds,
        update_seconds,
        peak_bytes,
    })
}

/// Returns the least and the median seconds of a step's passes, and the least of its update.
fn fastest(
    mut step: impl FnMut() -> Result<(Duration, Duration), Failure>,
) -> Result<([f64; 2], f64), Failure> {
    let began = Instant::now();
    // The first step allocates memory that later ones reuse.
    let mut steps = vec![step()?];
    while (steps.len() <= FEWEST || began.elapsed() < ENOUGH) && began.elapsed() < LONG {
        steps.push(step()?);
    }
    let of = |percent, part: fn(&(Duration, Duration)) -> Duration| {
        percentile(steps.iter().map(|step| part(step).as_secs_f64()), percent).unwrap_or(0.0)
    };
    Ok(([0.0, 50.0].map(|percent| of(percent, |step| step.0)), of(0.0, |step| step.1)))
}

/// Returns the bytes of the gradient, and of a checkpoint.
fn bytes(stepper: &dyn Stepper) -> Result<(u64, u64), Failure> {
    let mut found = Ok((0, 0));
    stepper.with_replica(&mut |replica| {
        let trained = replica.layout().spans().iter().filter(|span| span.spec.kind.is_trained());
        let gradient = 4 * trained.map(|span| span.len as u64).sum::<u64>();
        let position = Position { step: 0, epoch: 0, step_in_epoch: 0, notes: serde_json::Value::Null };
        found = checkpoint::snapshot(replica, &position).map(|snapshot| (gradient, snapshot.bytes()));
    });
    Ok(found?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_small_network_is_taken() {
        let data = "fashion-mnist-small".into();
        let recipe = Recipe { data, batch_size: 4, ..Recipe::default() }.to_toml().unwrap();
        let job = |together, pause| TrialJob { recipe: recipe.clone(), together, pause };
        let step = take(&job(1, Duration::ZERO)).unwrap();
        // Weights, momentum, and the running statistics.
        assert_eq!(step.gradient_bytes, 4 * 76_674);
        assert!(step.checkpoint_bytes >= 2 * step.gradient_bytes && step.peak_bytes > 1_000_000, "{step:?}");
        assert!(step.shard_seconds > 0.0 && step.update_seconds > 0.0, "{step:?}");
        let slow = take(&job(2, Duration::from_millis(20))).unwrap();
        assert!(slow.shard_seconds >= 0.02 && slow.usual_shard_seconds >= slow.shard_seconds, "{slow:?}");
    }

    #[test]
    fn how_a_process_has_ended_is_told_with_its_last_words() {
        let shell = |script: &str| outcome(&Command::new("sh").args(["-c", script]).output().unwrap());
        let told = |how: &str, words: &str| {
            let was_killed = how.contains("killed");
            Trial::Failed { how: how.into(), was_killed, words: words.into() }
        };
        assert_eq!(shell("kill -9 $$"), told("was killed by signal 9", ""));
        assert_eq!(shell("echo one >&2; echo two >&2; exit 3"), told("has failed with exit code 3", "two"));
        assert_eq!(shell("exit 0"), told("has failed with exit code 0", ""), "it has not said anything");
    }
}
