//! A user's optimizer: it is in no table, has no rule apart from its state, and steps nothing.

use kolo_ddp::Layout;
use kolo_ddp::optimizer::{Optimizer, Settings, Update};

#[derive(Default)]
pub struct Own {
    pub settings: Settings,
    pub state: Vec<f32>,
}

impl Optimizer for Own {
    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn init(&mut self, layout: &Layout) {
        self.state = vec![0.0; layout.len()];
    }

    fn begin(&mut self, _: u64, _: f64) {}

    fn update(&mut self, _: Update<'_>) {}

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        vec![("own", &mut self.state)]
    }
}
