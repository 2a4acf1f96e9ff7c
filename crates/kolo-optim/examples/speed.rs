//! What a step of each optimizer of the table takes, on one thread, in nanoseconds an element, for the
//! tensors of a ResNet's stage; measured in turn, the least of some rounds:
//!
//! ```text
//! cargo run --release -p kolo-optim --example speed            # all
//! cargo run --release -p kolo-optim --example speed adamw sgd
//! ```

use std::time::Instant;

use kolo_optim::{ChoiceError, Kind, Layout, OPTIMIZERS, Optimizer, ParamSpec, Settings, Update};

const ROUNDS: u64 = 20;

fn main() -> Result<(), ChoiceError> {
    let kind = Kind::Parameter { decay: true };
    let shapes: [&[usize]; 4] = [&[256, 128, 3, 3], &[256, 256, 3, 3], &[256], &[512, 1000]];
    let specs =
        shapes.iter().enumerate().map(|(n, shape)| ParamSpec::new(format!("p{n}"), shape.to_vec(), kind));
    let layout = Layout::new(specs.collect());
    let noise = |seed: usize| (0..layout.len()).map(move |i| ((i * 31 + seed) as f32 * 0.37).sin());
    let gradient: Vec<f32> = noise(7).collect();

    let asked: Vec<String> = std::env::args().skip(1).collect();
    let entries =
        OPTIMIZERS.iter().filter(|entry| asked.is_empty() || asked.iter().any(|name| name == entry.name));
    let mut runs = Vec::new();
    for entry in entries {
        // Momentum, where it is not on by itself.
        let momentum = entry.setting("momentum").map(|setting| (setting.name.into(), 0.9.into()));
        let mut optimizer = entry.build(&momentum.into_iter().collect::<Settings>())?;
        optimizer.init(&layout);
        runs.push((entry.name, optimizer, noise(1).collect::<Vec<f32>>(), f64::INFINITY));
    }
    for round in 1..=ROUNDS {
        for (_, optimizer, parameters, least) in &mut runs {
            let begin = Instant::now();
            step(&mut **optimizer, &layout, round, parameters, &gradient);
            *least = least.min(begin.elapsed().as_secs_f64());
        }
    }
    for (name, _, _, least) in runs {
        println!("{name:6} {:7.3} ns an element", least * 1e9 / layout.len() as f64);
    }
    Ok(())
}

fn step(optimizer: &mut dyn Optimizer, layout: &Layout, step: u64, parameters: &mut [f32], gradient: &[f32]) {
    optimizer.begin(step, 1e-3);
    for span in layout.spans() {
        let range = span.range();
        let (parameters, gradient) = (&mut parameters[range.clone()], &gradient[range.clone()]);
        optimizer.update(Update { range, parameters, gradient, scale: 0.5, decay: true, group: 0 });
    }
}
