//! Fifty steps of each optimizer, compared with PyTorch, whose weights `pytorch/trajectories.py` wrote to
//! `pytorch/trajectories.json`, from the same weights and gradients. `oracle.rs` compares with the papers.

use kolo_optim::{Kind, Layout, Optimizer, ParamSpec, Settings, Update, named};
use serde::Deserialize;

const STEPS: u64 = 50;
/// Largest distance, relative to the norm of a tensor's values.
const LIMIT: f64 = 1e-5;

/// Output of the script.
#[derive(Deserialize)]
struct PyTorch {
    rate: f64,
    /// Steps whose weights are in the file.
    steps: Vec<u64>,
    shapes: Vec<Vec<usize>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    optimizer: String,
    settings: Settings,
    /// Weights of all tensors one after another, after each of those steps.
    weights: Vec<Vec<f64>>,
}

fn pytorch() -> PyTorch {
    serde_json::from_str(include_str!("pytorch/trajectories.json")).unwrap()
}

/// Same as in the script: a number in [-1, 1) with 11 bits.
fn noise(index: usize) -> f32 {
    let x = (index as u32 + 1).wrapping_mul(2_654_435_761);
    let x = (x ^ x >> 15).wrapping_mul(2_246_822_519);
    ((x ^ x >> 13) % 2048) as f32 / 1024.0 - 1.0
}

fn layout(shapes: &[Vec<usize>]) -> Layout {
    let spec = |(n, shape): (usize, &Vec<usize>)| {
        ParamSpec::new(format!("p{n}"), shape.clone(), Kind::Parameter { decay: true })
    };
    Layout::new(shapes.iter().enumerate().map(spec).collect())
}

/// Returns the weights after each step, all tensors one after another.
fn trajectory(mut optimizer: Box<dyn Optimizer>, layout: &Layout, rate: f64) -> Vec<Vec<f32>> {
    optimizer.init(layout);
    let mut weights: Vec<f32> = (0..layout.len()).map(noise).collect();
    let step = |step: u64| {
        optimizer.begin(step, rate);
        for span in layout.spans() {
            let range = span.range();
            // Doubled, because the update halves it.
            let gradient: Vec<f32> = range.clone().map(|i| 2.0 * noise(1000 * step as usize + i)).collect();
            let (parameters, gradient) = (&mut weights[range.clone()], &gradient[..]);
            optimizer.update(Update { range, parameters, gradient, scale: 0.5, decay: true, group: 0 });
        }
        weights.clone()
    };
    (1..=STEPS).map(step).collect()
}

/// Asserts that both agree, tensor by tensor, up to [`LIMIT`].
fn assert_close(found: &[f32], expected: &[f64], layout: &Layout, case: &str) {
    for span in layout.spans() {
        let pairs = found[span.range()].iter().zip(&expected[span.range()]);
        let distance = pairs.map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>().sqrt();
        let norm = expected[span.range()].iter().map(|b| b * b).sum::<f64>().sqrt();
        assert!(distance < LIMIT * norm, "{case}, {}: {:e}", span.spec.name, distance / norm);
    }
}

#[test]
fn trajectories_match_pytorch() {
    let PyTorch { rate, steps, shapes, cases } = pytorch();
    let layout = layout(&shapes);
    for Case { optimizer, settings, weights } in cases {
        let found = trajectory(named(&optimizer, &settings).unwrap(), &layout, rate);
        for (step, expected) in steps.iter().zip(&weights) {
            let case = format!("{optimizer} with {settings}, step {step}");
            assert_close(&found[*step as usize - 1], expected, &layout, &case);
        }
    }
}

/// A group with `adamw` takes AdamW's steps, matrices included.
#[test]
fn muon_steps_by_adamw_if_configured() {
    let layout = layout(&pytorch().shapes);
    let of = |name: &str, settings: Settings| trajectory(named(name, &settings).unwrap(), &layout, 0.02);
    let decay = Settings::default().with("weight_decay", 0.1);
    assert!(of("muon", decay.clone().with("adamw", true)) == of("adamw", decay));
}

/// A matrix laid out as inputs × outputs takes the steps of its transpose, even if the shape affects the
/// length.
#[test]
fn muon_takes_matrices_of_either_orientation() {
    let (rows, columns) = (9, 3);
    let trained = |shape: [usize; 2], settings: Settings, transposed: bool| {
        let layout = layout(&[shape.to_vec()]);
        let mut muon = named("muon", &settings).unwrap();
        muon.init(&layout);
        let place = |i: usize| if transposed { i % rows * columns + i / rows } else { i };
        let mut weights: Vec<f32> = (0..rows * columns).map(|i| noise(place(i))).collect();
        for step in 1..=3 {
            let gradient: Vec<f32> =
                (0..rows * columns).map(|i| noise(1000 * step as usize + place(i))).collect();
            muon.begin(step, 0.02);
            let (range, parameters, gradient) = (0..rows * columns, &mut weights[..], &gradient[..]);
            muon.update(Update { range, parameters, gradient, scale: 1.0, decay: true, group: 0 });
        }
        let mut back = vec![0.0; rows * columns];
        weights.iter().enumerate().for_each(|(i, weight)| back[place(i)] = *weight);
        back
    };
    for rms in [true, false] {
        let settings = Settings::default().with("match_rms_adamw", rms);
        let expected = trained([rows, columns], settings.clone(), false);
        assert!(trained([columns, rows], settings.with("inputs_first", true), true) == expected);
    }
}
