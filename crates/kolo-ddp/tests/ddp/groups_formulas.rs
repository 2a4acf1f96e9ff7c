//! Groups of parameters: each optimizer steps the tensors of each group by its paper's rule with that
//! group's settings.

use crate::common::groups::{RATE, SHARDS, choices, config, gradient, groups, layout, replica, train};
use crate::common::noise;
use crate::equations::{Read, Tensor, rule};
use kolo_comm::threads;
use kolo_ddp::optimizer::{self, Settings};

const STEPS: u64 = 20;

#[test]
fn each_group_is_stepped_by_the_equations_with_its_own_settings() {
    for (choice, of_block) in choices() {
        let entry = optimizer::find(&choice.name).unwrap();
        let settings = |own: Settings| {
            Read(entry.complete(&choice.settings.clone().into_iter().chain(own).collect()).unwrap())
        };
        let (usual, of_block_settings) = (settings(Settings::default()), settings(of_block.clone()));
        let train = |group| {
            let mut replica = replica(group, &config(groups(&of_block), 0.0625), &choice);
            train(&mut replica, STEPS);
            replica.values().unwrap().to_vec()
        };
        let ranks = threads::spawn(2, train).unwrap();
        for span in layout().spans() {
            let name = span.spec.name.as_str();
            let (settings, scale) = match name.split('.').next() {
                Some("embed") => (&usual, 0.0),
                Some("block") => (&of_block_settings, 0.1),
                Some("head") => (&usual, 10.0),
                _ => (&usual, 1.0),
            };
            let (shape, start) =
                (span.spec.shape.clone(), span.range().map(|i| f64::from(1.5 * noise(1, i))));
            let decays = shape.len() > 1;
            let mut tensor = Tensor::new(shape, start.collect(), decays);
            for step in 0..STEPS {
                let of_shards =
                    |index, value| (0..SHARDS).map(move |shard| gradient(value, index, step, shard));
                let values = span.range().zip(&tensor.w);
                let mean = values.map(|(index, w)| of_shards(index, *w).sum::<f64>() / SHARDS as f64);
                let mean: Vec<f64> = mean.collect();
                rule(entry.name)(&mut tensor, &mean, step as i32 + 1, RATE * scale, settings);
            }
            for weights in &ranks {
                let pairs = tensor.w.iter().zip(&weights[span.range()]);
                let most = pairs.map(|(a, b)| (a - f64::from(*b)).abs()).fold(0.0, f64::max);
                // A normalized direction has few digits if its gradient is close to 0.
                assert!(most <= 1e-4, "{choice:?}, {name}: {most:e}");
            }
        }
    }
}
