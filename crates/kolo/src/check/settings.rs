//! The settings of a recipe, in the form that the checks need.

use std::path::{Path, PathBuf};

use kolo::Failure;
use kolo_check::probes::DataFacts;
use kolo_check::{
    BatchSettings, CheckpointSettings, Exchange, Normalization, RateSettings, Schedule, Settings, Work,
};
use kolo_ddp::apportion;
use kolo_ddp::reduction::REDUCTIONS;
use kolo_models::{self as models, Traits};
use kolo_recipe::{BatchNormalization, LearningRateSchedule, Plan, Recipe, RunFolder};

use super::request::CheckRequest;

/// Returns the settings of a job with the recipe's number of workers; `data` is `None` if unreadable.
pub(super) fn settings(
    request: &CheckRequest<'_>,
    folder: &Path,
    data: Option<&DataFacts>,
) -> Result<Settings, Failure> {
    let CheckRequest { recipe, may_continue, resumes, is_elastic, .. } = *request;
    let global = recipe.batch_size * recipe.shards;
    let plan = recipe.plan(data.map_or(global, |data| data.samples))?;
    let weights = recipe.shares.clone().unwrap_or_else(|| vec![1.0; recipe.nproc]);
    Ok(Settings {
        model: recipe.model.clone(),
        normalization: normalization(recipe, models::find(&recipe.model)?.traits()),
        optimizer: recipe.optimizer.0.name.clone(),
        rate: rate(recipe, &plan),
        batch: BatchSettings { shard: recipe.batch_size, global },
        work: data.map(|data| work(recipe, &plan, data)),
        shares: apportion(recipe.shards, &weights, recipe.nproc).map_err(Failure::input)?,
        has_weights: recipe.shares.is_some(),
        straggler: recipe.straggler.clone(),
        exchange: exchange(recipe),
        checkpoints: CheckpointSettings {
            epochs: recipe.checkpoint_epochs,
            steps: recipe.checkpoint_steps,
            keep: recipe.keep_checkpoints,
            best: recipe.best_metric.is_some(),
        },
        patience: recipe.patience.filter(|_| recipe.eval_steps.is_none()),
        seed: recipe.seed,
        same_run: if resumes { None } else { same_run(recipe, folder) },
        is_elastic,
        resumes,
        may_continue,
        folder: folder.to_owned(),
    })
}

fn normalization(recipe: &Recipe, traits: Traits) -> Normalization {
    match recipe.batch_norm {
        _ if !traits.batch_norm => Normalization::None,
        BatchNormalization::Sync => Normalization::GlobalBatch,
        BatchNormalization::PerShard | BatchNormalization::Local => Normalization::PerShard,
    }
}

fn rate(recipe: &Recipe, plan: &Plan) -> RateSettings {
    RateSettings {
        top: plan.top_rate,
        is_scaled: recipe.rate.base_batch.is_some(),
        warmup_steps: plan.warmup_steps,
        schedule: match recipe.rate.schedule {
            LearningRateSchedule::Constant => Schedule::Constant,
            LearningRateSchedule::Step => Schedule::Step { epochs: recipe.rate.step_epochs },
            LearningRateSchedule::Cosine | LearningRateSchedule::Poly => Schedule::ToZero,
        },
    }
}

fn work(recipe: &Recipe, plan: &Plan, data: &DataFacts) -> Work {
    Work {
        samples: data.samples,
        test_samples: data.test_samples,
        epochs: recipe.epochs,
        epoch_steps: plan.epoch_steps,
        planned_steps: plan.planned_steps,
        step_limit: recipe.steps,
        steps: plan.steps,
        last_rate: plan.last_rate,
    }
}

fn exchange(recipe: &Recipe) -> Exchange {
    let mode = &recipe.sync.mode;
    let is_whole = recipe.reduction == REDUCTIONS[0].name;
    match is_whole && mode.traits().rounds.is_none() && mode.traits().staleness_bound.is_none() {
        false => Exchange::Less,
        true if mode.traits().is_delayed => Exchange::StepLater,
        true => Exchange::WithinStep,
    }
}

/// Returns a run beside the folder whose settings give the same result.
fn same_run(recipe: &Recipe, folder: &Path) -> Option<PathBuf> {
    let beside = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut runs: Vec<PathBuf> =
        std::fs::read_dir(beside).ok()?.flatten().map(|entry| entry.path()).collect();
    runs.sort();
    runs.into_iter().find(|path| {
        let other = RunFolder::at(path.clone()).config();
        path != folder && other.is_ok_and(|other| matches!(recipe.difference(&other), Ok(None)))
    })
}

#[cfg(test)]
mod tests {
    use kolo_check::probes::SamplesRead;

    use super::*;

    fn of(recipe: &Recipe) -> Settings {
        let (read, warnings) = (SamplesRead { read: 32, of: 32 }, Vec::new());
        let data = DataFacts { samples: 10_000, test_samples: 2_000, fingerprint: None, read, warnings };
        let folder = Path::new("nowhere/run");
        let request = CheckRequest {
            recipe,
            folder: folder.to_owned(),
            may_continue: false,
            resumes: false,
            take_over: false,
            accept_changed_data: false,
            is_elastic: true,
            slowdowns: &[],
        };
        settings(&request, folder, Some(&data)).unwrap()
    }

    #[test]
    fn a_recipe_is_seen_as_it_trains() {
        let settings = of(&Recipe { shards: 3, nproc: 2, ..Recipe::default() });
        assert_eq!((settings.shares.as_slice(), settings.batch.global), (&[2, 1][..], 96));
        assert_eq!(settings.normalization, Normalization::PerShard);
        let work = settings.work.unwrap();
        assert_eq!((work.steps, work.epoch_steps, settings.rate.warmup_steps), (840, 105, 100));
    }

    #[test]
    fn what_goes_over_the_wire_follows_from_reduction_and_synchronization() {
        let of_sync = |mode: &str, reduction: &str| {
            let mut recipe = Recipe { reduction: reduction.into(), ..Recipe::default() };
            recipe.sync.mode = mode.parse().unwrap();
            of(&recipe).exchange
        };
        assert_eq!(of_sync("every-step", "sum"), Exchange::WithinStep);
        assert_eq!(of_sync("delayed:1", "sum"), Exchange::StepLater);
        assert_eq!(of_sync("diloco:H=50", "sum"), Exchange::Less);
        assert_eq!(of_sync("stale:3", "sum"), Exchange::Less);
        assert_eq!(of_sync("every-step", "bf16"), Exchange::Less);
    }

    #[test]
    fn a_run_with_the_same_settings_is_found_beside_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let recipe = Recipe::default();
        RunFolder::create(place.path().join("other"), &Recipe { seed: 1, ..recipe.clone() }).unwrap();
        assert_eq!(same_run(&recipe, &place.path().join("run")), None);
        // The number of workers does not matter.
        let before = RunFolder::create(place.path().join("same"), &Recipe { nproc: 1, ..recipe.clone() });
        assert_eq!(same_run(&recipe, &place.path().join("run")).unwrap(), before.unwrap().path());
        assert_eq!(same_run(&recipe, &place.path().join("same")), None, "the folder itself");
    }
}
