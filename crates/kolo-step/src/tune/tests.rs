use std::sync::Arc;

use super::*;
use kolo_optim::{Kind, Layout, ParamSpec};
use kolo_reduction::reversed;

pub(super) const MIB: usize = 1 << 20;

fn space() -> Space {
    let spec = |i: usize| ParamSpec::new(format!("p{i}"), vec![MIB / 4], Kind::Parameter { decay: true });
    let layout = Layout::new((0..40).map(spec).collect());
    let order = reversed(&layout);
    let (algorithms, ownership, streams) = (Vec::new(), None, 1);
    Space { layout: Arc::new(layout), order, whole: false, algorithms, ownership, streams }
}

pub(super) fn base() -> TunedSetting {
    TunedSetting {
        first_bytes: MIB,
        cap_bytes: 4 * MIB,
        slice_bytes: 4 * MIB,
        algorithm: None,
        ownership: None,
        streams: 1,
    }
}

/// Runs steps until a setting is kept; `seconds` is the time of a step, by its setting and its number.
fn tune(tuner: &mut Tuner, seconds: impl Fn(&TunedSetting, u64) -> f64) -> Tuning {
    for step in 0..1000 {
        if let Verdict::Keep(tuning) = tuner.step(seconds(&tuner.current().clone(), step)) {
            return *tuning;
        }
    }
    panic!("it tries for ever");
}

fn begun(effort: Effort) -> Tuner {
    let mut tuner = Tuner::new(effort, base());
    assert_eq!(tuner.step(1.0), Verdict::Stay, "nothing is tried before it begins");
    tuner.begin(space());
    tuner
}

/// Seconds by the cap in MiB, least at 16.
fn by_cap(setting: &TunedSetting) -> f64 {
    1.0 + 0.1 * (setting.cap_bytes as f64 / (16 * MIB) as f64).log2().abs()
}

#[test]
fn the_best_is_kept_with_what_it_saves() {
    let mut tuner = begun(Effort::Measured);
    let tuning = tune(&mut tuner, |setting, _| 0.1 * by_cap(setting));
    assert_eq!(tuning.kept, base().with_cap(16 * MIB));
    assert_eq!((tuning.begun_with.clone(), tuner.current()), (base(), &tuning.kept));
    assert!((tuning.gain() - (1.0 - 1.0 / 1.2)).abs() < 1e-9);
    let text = tuning.to_string();
    assert!(
        text.contains("buckets of 16 MiB take 0.100 s a step, 16.7 % less than buckets of 4 MiB"),
        "{text}"
    );
}

/// Some steps take ten times as long, like those with an evaluation before them; and the first step of every
/// setting is affected by the one before.
#[test]
fn single_long_steps_do_not_count() {
    let mut tuner = begun(Effort::Measured);
    let last = std::cell::RefCell::new(base());
    let tuning = tune(&mut tuner, |setting, step| {
        let is_first = last.replace(setting.clone()) != *setting;
        let factor = if step % 9 == 4 {
            10.0
        } else if is_first {
            0.2
        } else {
            1.0
        };
        0.1 * factor * by_cap(setting)
    });
    assert_eq!(tuning.kept, base().with_cap(16 * MIB));
}

/// A setting that was better only while it was tried is not kept: the machine may have become faster.
#[test]
fn luck_is_not_kept() {
    let mut tuner = begun(Effort::Measured);
    let tuning = tune(&mut tuner, |_, step| if (8..12).contains(&step) { 0.08 } else { 0.1 });
    assert_eq!(tuning.kept, base());
    assert!(tuning.gain() == 0.0 && tuning.to_string().contains("buckets of 4 MiB stay"), "{tuning}");
}

#[test]
fn long_steps_are_few_and_hopeless_ones_fewer() {
    let steps = |scale: f64| {
        tune(&mut begun(Effort::Measured), |setting, _| scale * if *setting == base() { 1.0 } else { 1.3 })
            .steps
    };
    let (long, middle, short) = (steps(4.0), steps(0.2), steps(0.01));
    assert!(long < middle && middle < short, "{long}, {middle}, {short}");
    assert_eq!(long % 2, 1, "each hopeless setting two steps, of which one counts, the first one three");
}

#[test]
fn in_haste_every_step_has_another_setting() {
    let mut tuner = begun(Effort::Hasty);
    let mut seen = vec![base()];
    while let Verdict::Try(next) = tuner.step(1.0) {
        assert!(!seen.contains(&next), "{next:?}");
        seen.push(next);
    }
    assert!(seen.len() > 3, "{seen:?}");
}

#[test]
fn it_begins_anew_when_steps_come_to_take_another_time() {
    let mut tuner = begun(Effort::Measured);
    let tuning = tune(&mut tuner, |setting, _| 0.1 * by_cap(setting));
    assert_eq!(tuning.changed, None);
    assert!((0..50).all(|_| tuner.step(0.1) == Verdict::Stay));
    let verdicts: Vec<Verdict> = (0..20).map(|_| tuner.step(0.2)).collect();
    assert_eq!(verdicts.last(), Some(&Verdict::Again));
    assert!(tuner.is_waiting() && *tuner.current() == tuning.kept, "with what was kept");
    tuner.begin(space());
    let again = tune(&mut tuner, |setting, _| if *setting == base() { 0.1 } else { 0.2 });
    assert_eq!((again.kept.clone(), again.changed), (base(), Some((0.1, 0.2))));
    assert!(
        again.to_string().starts_with("steps had come to take 0.200 s instead of 0.100 s; tuned"),
        "{again}"
    );
}
