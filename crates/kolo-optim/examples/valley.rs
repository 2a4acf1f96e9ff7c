//! Every optimizer of the table goes down the same valley, f(x, y) = x² + 10·y², from (1, 1):
//!
//! ```text
//! cargo run -p kolo-optim --example valley
//! ```

use kolo_optim::{ChoiceError, Kind, Layout, OPTIMIZERS, ParamSpec, Settings, Update};

fn main() -> Result<(), ChoiceError> {
    let kind = Kind::Parameter { decay: false };
    let layout = Layout::new(vec![ParamSpec::new("position", vec![2], kind)]);
    for entry in OPTIMIZERS {
        let mut optimizer = entry.build(&Settings::default())?;
        optimizer.init(&layout);
        let mut position = [1.0f32, 1.0];
        for step in 1..=200 {
            let gradient = [2.0 * position[0], 20.0 * position[1]];
            optimizer.begin(step, 0.02);
            let parameters = &mut position;
            optimizer.update(Update {
                range: 0..2,
                parameters,
                gradient: &gradient,
                scale: 1.0,
                decay: false,
                group: 0,
            });
        }
        let height = position[0].powi(2) + 10.0 * position[1].powi(2);
        println!("{:6} {height:9.2e} after 200 steps   ({})", entry.name, entry.about);
    }
    Ok(())
}
