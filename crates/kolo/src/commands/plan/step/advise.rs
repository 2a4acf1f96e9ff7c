//! `kolo plan step --advise WORKERS`: predicts the gain of each change to a job of so many workers.

use kolo::Failure;
use kolo_burn_train::Recipe;
use kolo_comm::schedule::ALGORITHMS;
use kolo_ddp::optimizer::{OPTIMIZERS, Optimizer, Settings};
use kolo_ddp::reduction::{REDUCTIONS, Reducer};
use kolo_ddp::table::{Choice, Entry, Value};
use kolo_plan::step::{
    Advice, Caps, Choices, Keeps, LoadTable, Pick, Prediction, StepProfile, Sync, Variant, advise,
    largest_gain, predict,
};

use super::choice_options::reduced;
use super::cluster_options::Place;
use super::origin::Origin;
use super::other_profiles::OtherProfile;

/// Bucket sizes to try, in MiB.
const CAPS: [f64; 5] = [1.0, 4.0, 10.0, 25.0, 100.0];
/// Ways to synchronize to try.
const SYNCS: [(&str, Sync); 3] =
    [("delayed:1", Sync::Delayed), ("local:H=8", Sync::Rounds(8)), ("diloco:H=50", Sync::Rounds(50))];
/// Numbers of micro-batches to try.
const ACCUMULATIONS: [usize; 3] = [2, 4, 8];

/// Returns the seconds of the unchanged step, and advice on every single change and on the best combination.
pub(super) fn all(
    workers: usize,
    origin: &Origin,
    recipe: &Recipe,
    profile: &StepProfile,
    choices: &Choices,
    place: &Place,
) -> Result<(f64, Vec<Advice>), Failure> {
    let table = LoadTable::new(place.of(workers)?);
    let now = predict(profile, &table, choices);
    let job = Variant {
        options: String::new(),
        choices: *choices,
        profile: profile.clone(),
        samples: 1.0,
        keeps: Keeps::Bits,
    };
    let [single, several] = tried(&job, origin, recipe);
    let of = |variant: &Variant| advise(&now, variant, &table);
    let mut advice: Vec<Advice> = single.iter().map(of).collect();
    advice.extend(servers(workers, &job, &now, place)?);
    let several: Vec<Advice> = several.iter().map(of).collect();
    // A combination is worth a line only if it gains more than any single change.
    let most = advice.iter().map(|told| told.gain).fold(1.0, f64::max);
    let best = largest_gain(&several).cloned();
    advice.extend(best.filter(|told| told.gain > 1.01 * most));
    Ok((now.seconds, advice))
}

/// Returns all single changes of a job, and all combinations of them, that `kolo train` takes.
fn tried(job: &Variant, origin: &Origin, recipe: &Recipe) -> [Vec<Variant>; 2] {
    let is_of_reduction = |variant: &Variant| variant.options.starts_with("--reduction ");
    let (reduced, profiled) = profiled(job, origin).into_iter().partition(is_of_reduction);
    let possible = [profiled, reductions(job, origin, reduced), syncs(job)];
    let [profiled, reductions, syncs] = possible.map(|variants| permitted(recipe, variants));
    let caps = caps(job);
    let both = permitted(recipe, combined(&reductions, &syncs));
    let several = [combined(&caps, &reductions), combined(&caps, &syncs), combined(&caps, &both), both];
    let single = [profiled, caps, algorithms(job), accumulations(job), reductions, syncs];
    [single.concat(), several.concat()]
}

/// Returns the variants that `kolo train` takes beside the other settings of the job.
fn permitted(job: &Recipe, variants: Vec<Variant>) -> Vec<Variant> {
    variants.into_iter().filter(|variant| takes(job, &variant.options)).collect()
}

/// Returns true if a job can have these options, whose way to synchronize may exclude others.
fn takes(job: &Recipe, options: &str) -> bool {
    let mut job = job.clone();
    let words: Vec<&str> = options.split(' ').collect();
    for option in words.chunks(2) {
        match *option {
            ["--reduction", name] => job.reduction = name.into(),
            ["--precision", name] => job.precision.compute = name.into(),
            ["--sync", name] => match name.parse() {
                Ok(mode) => job.sync.mode = mode,
                Err(_) => return false,
            },
            _ => {}
        }
    }
    job.sync.check(&job).is_ok()
}

fn changed(job: &Variant, options: String, keeps: Keeps, choices: Choices) -> Variant {
    Variant { options, choices, keeps: keeps.max(job.keeps), ..job.clone() }
}

/// Returns a variant for each profile that was measured with other options.
fn profiled(job: &Variant, origin: &Origin) -> Vec<Variant> {
    let of = |other: &OtherProfile| {
        let choices = Choices { reduction: other.reduction, ..job.choices };
        let (profile, samples) = (other.profile.clone(), other.samples);
        Variant { profile, samples, ..changed(job, other.options.clone(), other.keeps, choices) }
    };
    origin.others.iter().map(of).filter(Variant::is_possible).collect()
}

fn caps(job: &Variant) -> Vec<Variant> {
    let of = |mib: f64| {
        let caps = Some(Caps::of_mib(mib));
        changed(job, format!("--bucket-cap-mb {mib}"), Keeps::Bits, Choices { caps, ..job.choices })
    };
    CAPS.iter().map(|mib| of(*mib)).filter(|variant| variant.choices != job.choices).collect()
}

fn algorithms(job: &Variant) -> Vec<Variant> {
    let kept = ALGORITHMS.iter().filter(|algorithm| algorithm.keeps_tree);
    kept.map(|algorithm| {
        let choices = Choices { pick: Pick::Named(algorithm.name), ..job.choices };
        changed(job, format!("--algorithm {}", algorithm.name), Keeps::Bits, choices)
    })
    .collect()
}

fn accumulations(job: &Variant) -> Vec<Variant> {
    let of = |accumulate: usize| {
        let choices = Choices { accumulate, ..job.choices };
        changed(job, format!("--accumulate {accumulate}"), Keeps::Gradients, choices)
    };
    ACCUMULATIONS.iter().filter(|times| **times != job.choices.accumulate).map(|times| of(*times)).collect()
}

/// Returns the reductions of the table that suit every optimizer: each with its default settings and with
/// each of its flags. One that costs as much as an earlier one is left out.
fn table() -> Vec<Choice> {
    let suits = |reducer: &dyn Reducer| {
        let check = |entry: &Entry<dyn Optimizer>| {
            let defaults = entry.complete(&Settings::default());
            defaults.is_ok_and(|settings| reducer.check(entry.name, &settings).is_ok())
        };
        OPTIMIZERS.iter().all(check)
    };
    let mut costs = Vec::new();
    let mut choices = Vec::new();
    for entry in REDUCTIONS {
        let Ok(reducer) = entry.build(&Settings::default()) else { continue };
        let cost = reducer.wire_cost();
        if cost.is_none_or(|cost| cost.is_exact) || costs.contains(&cost) || !suits(&*reducer) {
            continue;
        }
        costs.push(cost);
        choices.push(Choice::new(entry.name));
        let flags = entry.settings.iter().filter(|setting| matches!(setting.default, Value::Flag(false)));
        choices.extend(flags.map(|flag| Choice::new(entry.name).with(flag.name, true)));
    }
    choices
}

/// Returns the measured reductions, and those whose bytes follow without the shapes of the tensors. The
/// latter need the profile of a sum.
fn reductions(job: &Variant, origin: &Origin, measured: Vec<Variant>) -> Vec<Variant> {
    let of = |choice: &Choice| {
        let name = choice.to_string();
        let (profile, reduction) = reduced(&name, origin).ok()?;
        let choices = Choices { reduction, ..job.choices };
        Some(Variant { profile, ..changed(job, format!("--reduction {name}"), Keeps::Nothing, choices) })
    };
    let is_other = |variant: &Variant| variant.choices.reduction != job.choices.reduction;
    let is_new = |variant: &Variant| measured.iter().all(|known| known.options != variant.options);
    let others = table().iter().filter_map(of).filter(is_other).filter(is_new).collect();
    [measured, others].concat()
}

fn syncs(job: &Variant) -> Vec<Variant> {
    let of = |(name, sync): &(&str, Sync)| {
        changed(job, format!("--sync {name}"), Keeps::Nothing, Choices { sync: *sync, ..job.choices })
    };
    SYNCS.iter().filter(|(_, sync)| *sync != job.choices.sync).map(of).filter(Variant::is_possible).collect()
}

/// Advises on a server for every second worker, and on one for each worker.
fn servers(workers: usize, job: &Variant, now: &Prediction, place: &Place) -> Result<Vec<Advice>, Failure> {
    let mut advice = Vec::new();
    for servers in [workers / 2, workers].into_iter().filter(|count| *count > 0 && *count != place.servers())
    {
        let table = LoadTable::new(place.with_servers(workers, servers)?);
        let options = format!("--servers {servers}");
        advice.push(advise(now, &changed(job, options, Keeps::Bits, job.choices), &table));
    }
    Ok(advice)
}

/// Combines each variant of the first list with each of the second.
fn combined(first: &[Variant], second: &[Variant]) -> Vec<Variant> {
    let both = |a: &Variant, b: &Variant| Variant {
        options: format!("{} {}", a.options, b.options),
        choices: Choices { sync: b.choices.sync, ..merged(a, b) },
        profile: if b.choices.reduction.is_exact { a.profile.clone() } else { b.profile.clone() },
        samples: a.samples,
        keeps: a.keeps.max(b.keeps),
    };
    let all = first.iter().flat_map(|a| second.iter().map(move |b| both(a, b)));
    all.filter(Variant::is_possible).collect()
}

/// Returns the choices of `a`, with the reduction of `b` if that one is lossy.
fn merged(a: &Variant, b: &Variant) -> Choices {
    let reduction = if b.choices.reduction.is_exact { a.choices.reduction } else { b.choices.reduction };
    Choices { reduction, ..a.choices }
}

#[cfg(test)]
mod tests {
    use super::super::other_profiles::measured_with;
    use kolo_ddp::sync::JobSetting;
    use kolo_ddp::{Config, LossScaling, reduction};

    use super::*;

    #[test]
    fn reductions_of_the_table_are_tried_by_their_cost() {
        let tried: Vec<String> = table().iter().map(Choice::to_string).collect();
        let expected = ["bf16", "qsgd", "ef-sign", "top-k", "random-k", "random-k:unbiased=true", "powersgd"];
        assert_eq!(tried, expected, "powersgd only as it was measured");
    }

    /// The oracle is the table of exclusions, beside a configuration with the settings that the options name.
    #[test]
    fn whatever_is_tried_is_a_job_that_its_synchronization_permits() {
        let profile = StepProfile::even(0.01, 0.02, 0.005, 4e7, 1e6);
        let other = |options: &str, reduction| {
            let (options, profile, reduction) = (options.into(), profile.clone(), measured_with(reduction));
            OtherProfile { options, profile, reduction, samples: 1.0, keeps: Keeps::Nothing }
        };
        let syncs = || [("every-step", Sync::EveryStep)].into_iter().chain(SYNCS);
        let of_types =
            |name| ["f32", "f16"].into_iter().flat_map(move |kind| syncs().map(move |of| (name, kind, of)));
        let (mut refused, mut walked) = (0, 0);
        for (name, kind, (mode, sync)) in ["sum", "bf16", "ef-sign"].into_iter().flat_map(of_types) {
            let of_job = [kind, mode, name];
            let (shards, cores, caps, reduction) = (None, None, None, measured_with(name));
            let others = vec![other("--precision f16", "sum"), other("--reduction powersgd", "powersgd")];
            let (reduction_name, precision) = (name.into(), kind.into());
            let profile = profile.clone();
            let origin =
                Origin { profile, reduction, reduction_name, precision, shards, cores, caps, others };
            let (config, mut recipe) = (config(of_job), Recipe::default());
            (recipe.reduction, recipe.sync.mode) = (name.into(), mode.parse().unwrap());
            recipe.precision.compute = kind.into();
            let is_refused = config.sync.exclusion(&JobSetting::of(&config)).is_some();
            assert_eq!(recipe.sync.check(&recipe).is_err(), is_refused, "{of_job:?}");
            refused += usize::from(is_refused);
            let choices = Choices { reduction, sync, ..Choices::default() };
            let (options, profile) = (String::new(), origin.profile.clone());
            let job = Variant { options, choices, profile, samples: 1.0, keeps: Keeps::Bits };
            for variant in tried(&job, &origin, &recipe).concat().iter().filter(|_| !is_refused) {
                let words: Vec<&str> = variant.options.split(' ').collect();
                let place = |option| words.iter().position(|word| *word == option);
                let options = ["--precision", "--sync", "--reduction"].map(place).into_iter().zip(of_job);
                let all: Vec<&str> =
                    options.map(|(at, of_job)| at.map_or(of_job, |at| words[at + 1])).collect();
                let config = self::config(all.try_into().unwrap());
                assert_eq!(config.sync.exclusion(&JobSetting::of(&config)), None, "{}", variant.options);
                walked += 1;
            }
        }
        assert!(refused > 1 && walked > 200, "{refused} jobs are refused, {walked} changes were tried");
    }

    fn config([precision, sync, reduction]: [&str; 3]) -> Config {
        Config {
            reduction: reduction::parse(reduction).unwrap(),
            loss_scaling: (precision == "f16").then(LossScaling::default),
            sync: sync.parse().unwrap(),
            ..Config::default()
        }
    }
}
