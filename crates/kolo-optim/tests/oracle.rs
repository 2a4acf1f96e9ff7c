//! Compares every optimizer with the equations of its paper, in double precision with one loop and no flat
//! memory. The steps have gradients summed over 1, 7, 33 or 64 samples, changing rates, groups, tensors of
//! every kind, and every setting away from its default. Equal bits on all workers can be wrong on all of
//! them; this test checks the values.

mod equations;

use std::ops::Range;

use equations::{Read, Tensor, norm, rule};
use kolo_optim::table::{Allowed, Entry, Value};
use kolo_optim::{GroupSettings, Kind, Layout, OPTIMIZERS, Optimizer, ParamSpec, Scope, Settings, Update};

const STEPS: u64 = 30;
/// Largest distance, relative to the norm of a tensor's values.
const LIMIT: f64 = 1e-5;

fn count(step: u64) -> usize {
    [64, 1, 7, 64, 33, 1, 1, 7][step as usize % 8]
}

/// Returns a rate that rises, falls, and is 0 once.
fn rate(step: u64) -> f64 {
    match step {
        11 => 0.0,
        _ => 0.02 * (step as f64 / 5.0).min(1.0) * (1.0 - step as f64 / 40.0),
    }
}

/// Returns a number in [-1, 1) with 11 bits, so that short sums are exact.
fn noise(index: usize) -> f32 {
    let x = (index as u32 + 1).wrapping_mul(2_654_435_761);
    let x = (x ^ x >> 15).wrapping_mul(2_246_822_519);
    ((x ^ x >> 13) % 2048) as f32 / 1024.0 - 1.0
}

/// Returns shape, weight decay and group of each tensor. Tensors without elements have the offset of the next
/// one.
fn shapes() -> Vec<(Vec<usize>, bool, usize)> {
    vec![
        (vec![0], true, 0),
        (vec![0, 8], true, 1),
        (vec![], true, 0),
        (vec![1], false, 1),
        (vec![6, 4], true, 0),
        (vec![8, 0], false, 0),
        (vec![4, 9], true, 1),
        (vec![17], false, 0),
        (vec![0, 3, 3, 3], true, 0),
        (vec![5, 3, 2, 2], true, 0),
        (vec![40, 3], false, 1),
        (vec![1, 1], true, 0),
        (vec![37], true, 1),
        (vec![3, 0], true, 0),
    ]
}

/// Returns the groups; the second one has its own settings.
fn groups(entry: &Entry<dyn Optimizer>) -> Vec<GroupSettings> {
    let mut settings = Settings::default();
    for (name, value) in [("weight_decay", 0.3), ("momentum", 0.5), ("beta1", 0.6), ("epsilon", 1e-2)] {
        if entry.setting(name).is_some() {
            settings = settings.with(name, value);
        }
    }
    let other = GroupSettings { tensors: "some".into(), lr_scale: 0.5, settings };
    vec![GroupSettings::default(), other]
}

/// Returns settings as far from the defaults as possible, and each flag toggled in turn.
fn variants(entry: &Entry<dyn Optimizer>) -> Vec<Settings> {
    let other_value = |name: &str| match name {
        "weight_decay" => 0.1,
        "momentum" | "beta1" => 0.8,
        "beta2" => 0.95,
        "epsilon" => 1e-3,
        "trust_coefficient" => 0.05,
        "freeze_after" => 9.0,
        other => panic!("no other value for the setting `{other}` of {}: write one here", entry.name),
    };
    let numbers = entry.settings.iter().filter(|setting| setting.allowed != Allowed::Flag);
    let numbers: Settings =
        numbers.map(|setting| (setting.name.to_string(), Value::Number(other_value(setting.name)))).collect();
    let mut all = vec![Settings::default(), numbers.clone()];
    for setting in entry.settings {
        match setting.default {
            Value::Flag(flag) => all.push(numbers.clone().with(setting.name, !flag)),
            Value::Number(_) => {
                all.push(Settings::default().with(setting.name, other_value(setting.name)));
            }
        }
    }
    all
}

/// Returns sums of some samples' gradients for a range of flat memory.
fn sums(step: u64, range: Range<usize>) -> Vec<f32> {
    let of_sample = |element: usize, sample: usize| noise(element + 997 * sample + 100_003 * step as usize);
    // One element has no gradient in the first steps, like a unit that never fires.
    let value = |element: usize| match element == 20 && step < 5 {
        true => 0.0,
        false => (0..count(step)).map(|sample| of_sample(element, sample)).sum(),
    };
    range.map(value).collect()
}

/// Returns the optimizer's weights after each step, all tensors one after another.
fn found(entry: &Entry<dyn Optimizer>, settings: &Settings, layout: &Layout) -> Vec<Vec<f32>> {
    let mut optimizer = entry.build(settings).unwrap();
    optimizer.set_groups(&groups(entry)).unwrap();
    optimizer.init(layout);
    let mut weights: Vec<f32> = (0..layout.len()).map(noise).collect();
    let step = |step: u64| {
        optimizer.begin(step, rate(step));
        for (span, (_, decays, group)) in layout.spans().iter().zip(shapes()) {
            // An element-wise rule may be cut anywhere.
            let cut = match optimizer.scope() {
                Scope::Element => span.offset + span.len / 3,
                Scope::Tensor => span.offset,
            };
            for range in [cut..span.range().end, span.offset..cut] {
                if optimizer.scope() == Scope::Tensor && range.is_empty() && span.len > 0 {
                    continue;
                }
                let (parameters, gradient) = (&mut weights[range.clone()], &sums(step, range.clone())[..]);
                let scale = 1.0 / count(step) as f32;
                optimizer.update(Update { range, parameters, gradient, scale, decay: decays, group });
            }
        }
        weights.clone()
    };
    (1..=STEPS).map(step).collect()
}

/// Returns the same from the equations.
fn expected(entry: &Entry<dyn Optimizer>, settings: &Settings, layout: &Layout) -> Vec<Vec<f64>> {
    let double = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<f64>>();
    let mut tensors: Vec<(Tensor, usize, Range<usize>)> = (layout.spans().iter())
        .zip(shapes())
        .map(|(span, (shape, decays, group))| {
            let w = double(span.range().map(noise).collect());
            (Tensor::new(shape, w, decays), group, span.range())
        })
        .collect();
    let of_group = groups(entry).into_iter().map(|group| {
        let all = settings.clone().into_iter().chain(group.settings).collect();
        (group.lr_scale, Read(entry.complete(&all).unwrap()))
    });
    let of_group: Vec<(f64, Read)> = of_group.collect();
    let step = |step: u64| {
        for (tensor, group, range) in &mut tensors {
            let (scale, settings) = &of_group[*group];
            let mean: Vec<f64> =
                double(sums(step, range.clone())).iter().map(|sum| sum / count(step) as f64).collect();
            rule(entry.name)(tensor, &mean, step as i32, rate(step) * scale, settings);
        }
        tensors.iter().flat_map(|(tensor, ..)| tensor.w.clone()).collect()
    };
    (1..=STEPS).map(step).collect()
}

#[test]
fn every_optimizer_follows_its_equations() {
    let specs = shapes()
        .into_iter()
        .enumerate()
        .map(|(n, (shape, decay, _))| ParamSpec::new(format!("p{n}"), shape, Kind::Parameter { decay }));
    let layout = Layout::new(specs.collect());
    let mut compared = 0;
    for entry in OPTIMIZERS {
        for settings in variants(entry) {
            let (found, expected) = (found(entry, &settings, &layout), expected(entry, &settings, &layout));
            for (step, (found, expected)) in (1..).zip(found.iter().zip(&expected)) {
                for span in layout.spans() {
                    let pairs = found[span.range()].iter().zip(&expected[span.range()]);
                    let distance = pairs.map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>().sqrt();
                    let size = norm(&expected[span.range()]);
                    let context =
                        || format!("{} with {settings}, step {step}, {:?}", entry.name, span.spec.shape);
                    assert!(distance <= LIMIT * size, "{}: {:e}", context(), distance / size);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 10_000, "{compared}");
}

/// An optimizer passes NaN on. A step that swallowed it would train on with meaningless numbers.
#[test]
fn nan_in_a_gradient_is_nan_in_the_parameter() {
    let layout = Layout::new(vec![ParamSpec::new("p", vec![7, 5], Kind::Parameter { decay: true })]);
    for entry in OPTIMIZERS {
        for settings in variants(entry) {
            for poison in [f32::NAN, f32::from_bits(0x7f80_0001), f32::INFINITY, f32::NEG_INFINITY] {
                let mut optimizer = entry.build(&settings).unwrap();
                optimizer.init(&layout);
                let mut weights: Vec<f32> = (0..35).map(noise).collect();
                for step in 1..=3 {
                    let mut gradient = sums(step, 0..35);
                    gradient[12] = poison;
                    optimizer.begin(step, 0.01);
                    let (parameters, gradient) = (&mut weights[..], &gradient[..]);
                    optimizer.update(Update {
                        range: 0..35,
                        parameters,
                        gradient,
                        scale: 1.0,
                        decay: true,
                        group: 0,
                    });
                }
                let context = format!("{} with {settings}, {poison}: {:?}", entry.name, weights[12]);
                // The sign of infinity is finite, so Lion's step is finite.
                let is_sign = entry.name == "lion" && poison.is_infinite();
                assert!(is_sign || !weights[12].is_finite(), "{context}");
            }
        }
    }
}
