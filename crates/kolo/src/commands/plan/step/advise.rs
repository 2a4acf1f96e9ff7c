//! `kolo plan step --advise WORKERS`: predicts the gain of each change to a job of so many workers.

use kolo::Failure;
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
use super::other_profiles::OtherProfile;
use super::profile_options::Origin;

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
    let is_of_reduction = |variant: &Variant| variant.options.starts_with("--reduction ");
    let (reduced, profiled) = profiled(&job, origin).into_iter().partition(is_of_reduction);
    let [caps, reductions, syncs] = [caps(&job), reductions(&job, origin, reduced), syncs(&job)];
    let single = [&profiled, &caps, &algorithms(&job), &accumulations(&job), &reductions, &syncs];
    let of = |variant: &Variant| advise(&now, variant, &table);
    let mut advice: Vec<Advice> = single.into_iter().flatten().map(of).collect();
    advice.extend(servers(workers, &job, &now, place)?);
    let pairs = [combined(&caps, &reductions), combined(&caps, &syncs), combined(&reductions, &syncs)];
    let triples = combined(&combined(&caps, &reductions), &syncs);
    let several: Vec<Advice> = pairs.iter().chain([&triples]).flatten().map(of).collect();
    // A combination is worth a line only if it gains more than any single change.
    let most = advice.iter().map(|told| told.gain).fold(1.0, f64::max);
    let best = largest_gain(&several).cloned();
    advice.extend(best.filter(|told| told.gain > 1.01 * most));
    Ok((now.seconds, advice))
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
    use super::*;

    #[test]
    fn reductions_of_the_table_are_tried_by_their_cost() {
        let tried: Vec<String> = table().iter().map(Choice::to_string).collect();
        let expected = ["bf16", "qsgd", "ef-sign", "top-k", "random-k", "random-k:unbiased=true", "powersgd"];
        assert_eq!(tried, expected, "powersgd only as it was measured");
    }
}
