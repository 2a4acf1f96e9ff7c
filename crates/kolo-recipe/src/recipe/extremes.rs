//! Extreme numbers in every setting: each is refused with a message, or can be planned with. Tests are
//! compiled with overflow checks, so a sum or product that wraps panics here.

use clap::{Args, Command, FromArgMatches};
use kolo_ddp::optimizer::OPTIMIZERS;
use kolo_ddp::reduction::REDUCTIONS;
use kolo_ddp::sync::SYNCS;
use kolo_ddp::table::{Allowed, Setting};
use kolo_ddp::transform::TRANSFORMS;

use super::*;

const EXTREMES: [&str; 24] = [
    "0", "1", "2", "-1", "4294967295", "4294967296", "9007199254740992", "9007199254740993",
    "9223372036854775807", "18446744073709551615", "18446744073709551616", "0.99999999", "1.0000000001",
    "1e-46", "1e-320", "-1e-320", "-0", "1e38", "1e39", "1e308", "nan", "inf", "-inf", "",
];

/// Returns a recipe with these options, if the command line accepts them.
fn with(options: &[String]) -> Option<Recipe> {
    let words = std::iter::once("train".to_string()).chain(options.iter().cloned());
    let matches = Recipe::augment_args(Command::new("train")).try_get_matches_from(words).ok()?;
    Recipe::from_arg_matches(&matches).ok()
}

/// Returns true if the recipe is accepted and planned; all figures that follow from it can be computed then.
fn is_accepted(recipe: &Recipe) -> bool {
    let accepted = recipe.check().is_ok();
    let planned = accepted && recipe.plan(60_000).is_ok();
    if planned {
        let plan = recipe.plan(60_000).unwrap();
        assert!((plan.top_rate as f32) > 0.0 && (plan.top_rate as f32).is_finite(), "{recipe:?}: {plan:?}");
        assert!(plan.steps <= plan.planned_steps && (plan.last_rate as f32).is_finite(), "{recipe:?}");
        recipe.ddp().unwrap();
    }
    planned
}

#[test]
fn every_option_takes_any_number_or_refuses_it() {
    let command = Recipe::augment_args(Command::new("train"));
    let (mut tried, mut accepted) = (0, 0);
    for option in command.get_arguments().filter_map(|option| option.get_long()) {
        for value in EXTREMES {
            for value in [
                value.to_string(),
                format!("{value}:{value}"),
                format!("1:{value}"),
                format!("*:lr_scale={value}"),
            ] {
                tried += 1;
                let given = format!("--{option}={value}");
                accepted += usize::from(with(&[given]).is_some_and(|recipe| is_accepted(&recipe)));
            }
        }
    }
    assert!(tried > 4000 && accepted > 300, "{accepted} accepted of {tried}");
}

#[test]
fn every_count_of_a_file_is_one_that_can_be_computed_with() {
    let numbers = EXTREMES.iter().filter_map(|text| text.parse::<u64>().ok());
    for number in numbers {
        for (shards, nproc, batch_size, epochs) in [
            (number, 1, 1, 1),
            (1, number, 1, 1),
            (number, number, number, number),
            (number, 1, number, 1),
            (1, 1, number, number),
        ] {
            let [shards, nproc, batch_size, epochs] =
                [shards, nproc, batch_size, epochs].map(|number| number as usize);
            let schedule = LearningRateSchedule::Step;
            let rate = RateConfig {
                schedule,
                warmup_epochs: Some(epochs),
                step_epochs: epochs,
                ..RateConfig::default()
            };
            is_accepted(&Recipe { shards, nproc, batch_size, epochs, rate, ..Recipe::default() });
        }
    }
}

fn settings() -> Vec<(String, &'static Setting)> {
    let mut all = Vec::new();
    let mut add = |prefix: &str, name: &str, settings: &'static [Setting]| {
        all.extend(settings.iter().map(|setting| (format!("{prefix}{name}"), setting)));
    };
    OPTIMIZERS.iter().for_each(|entry| add("--optimizer=", entry.name, entry.settings));
    TRANSFORMS.iter().for_each(|entry| add("", "", entry.settings));
    REDUCTIONS.iter().for_each(|entry| add("--reduction=", entry.name, entry.settings));
    SYNCS.iter().for_each(|entry| add("--sync=", entry.name, entry.settings));
    all
}

/// Returns the options that give a setting a value.
fn options(owner: &str, setting: &Setting, value: &str) -> Vec<String> {
    let own = format!("--{}={value}", setting.name.replace('_', "-"));
    match owner {
        "" => vec![own],
        owner if owner.starts_with("--optimizer") => vec![owner.into(), own],
        owner => vec![format!("{owner}:{}={value}", setting.name)],
    }
}

#[test]
fn every_setting_of_every_table_takes_any_number_or_refuses_it() {
    for (owner, setting) in settings() {
        for value in EXTREMES {
            let accepted = with(&options(&owner, setting, value)).is_some_and(|recipe| is_accepted(&recipe));
            let Ok(number) = value.parse::<f64>() else { continue };
            let context = format!("{owner} {} = {value}", setting.name);
            assert!(!accepted || number.is_finite(), "{context}");
            // Computations use the nearest f32.
            let rounded = f64::from(number as f32);
            match &setting.allowed {
                Allowed::Number(range) => assert!(!accepted || range.contains(&rounded), "{context}"),
                Allowed::Positive => assert!(!accepted || rounded > 0.0 && rounded.is_finite(), "{context}"),
                Allowed::Whole(_) | Allowed::Flag => {}
            }
        }
    }
}

#[test]
fn a_number_that_rounds_to_one_that_is_not_allowed_is_refused_by_name() {
    for (options, words) in [
        (vec!["--optimizer=adamw", "--beta2=0.99999999"], "--beta2 0.99999999: it is 1 in single precision"),
        (vec!["--optimizer=adam", "--epsilon=1e-46"], "--epsilon 1e-46: it is 0 in single precision"),
        (vec!["--momentum=0.99999999"], "--momentum 0.99999999: it is 1 in single precision"),
        (vec!["--weight-decay=1e39"], "--weight-decay 1e39: it is inf in single precision"),
    ] {
        let words_of = |options: &[&str]| {
            let all = std::iter::once("train").chain(options.iter().copied());
            let matches = Recipe::augment_args(Command::new("train")).try_get_matches_from(all).unwrap();
            Recipe::from_arg_matches(&matches).unwrap().check().unwrap_err().to_string()
        };
        assert!(words_of(&options).contains(words), "{options:?}: {}", words_of(&options));
    }
    for (lr, words) in [
        (1e40, "--lr 1e40: it must be greater than 0 and at most 3e38, as single precision"),
        (f64::INFINITY, "--lr inf: it must be greater than 0 and at most 3e38, as single precision"),
        (-1e40, "--lr -1e40: it must be greater than 0"),
        (f64::NAN, "--lr NaN: it must be greater than 0"),
        (1e-50, "--lr 1e-50: it is 0 in single precision; it must be greater than 0 there, as 1e-45 is"),
    ] {
        let mut recipe = Recipe::default();
        recipe.rate.lr = lr;
        let error = recipe.check().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    // Here only the scaling to the batch makes the rate invalid.
    let mut recipe = Recipe { shards: 1000, ..Recipe::default() };
    (recipe.rate.lr, recipe.rate.base_batch) = (3e38, Some(1));
    let error = recipe.plan(60_000).unwrap_err().to_string();
    assert!(error.contains("scaled to the batch") && error.contains("at most 3e38"), "{error}");
}

#[test]
fn a_warm_up_beyond_the_run_never_ends() {
    let mut recipe = Recipe::default();
    recipe.rate.warmup_epochs = Some(u32::MAX as usize);
    let plan = recipe.plan(60_000).unwrap();
    assert!(plan.last_rate < 1e-3, "{plan:?}");
    recipe.rate.warmup_epochs = Some(usize::MAX);
    let error = recipe.plan(60_000).and(recipe.check()).unwrap_err().to_string();
    assert!(error.contains("--warmup-epochs 18446744073709551615: it must be at most 4294967295"), "{error}");
}
