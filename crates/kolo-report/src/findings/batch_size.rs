//! A batch size far from the one that the gradient's noise allows.

use serde_json::Value;

use kolo_run_folder::Run;

use super::finding::{Entry, Found, Severity};
use crate::units::number;

pub(super) const ENTRY: Entry<Run> = Entry {
    name: "batch size",
    about: "a batch far above or below the critical one, where that is measured",
    find,
};

/// Range of batch / critical batch without a finding.
const MIDDLE: std::ops::Range<f64> = 0.25..2.0;

fn find(run: &Run) -> Option<Found> {
    let noise = run.summary.as_ref()?.others.get("noise_scale")?;
    let field = |name: &str| noise.get(name).and_then(Value::as_f64);
    let (batch, critical, share) = (field("batch")?, field("critical")?, field("share")?);
    let (samples, steps) = (field("doubled_samples")?, field("doubled_steps")?);
    if MIDDLE.contains(&share) {
        return None;
    }
    let (headline, remedy) = if share < MIDDLE.start {
        (
            "The batch may grow: twice as large, it takes almost half of the steps",
            "Give more workers, or each more work (--shards, --batch-size), with a larger learning rate \
             (--scale-lr): communication then costs a smaller part of each sample.",
        )
    } else {
        (
            "The batch is larger than the gradient's noise asks for",
            "More workers with a still larger batch bring little; a smaller batch (--batch-size) reaches \
             the same loss with fewer samples.",
        )
    };
    Some((
        Severity::Notice,
        headline.into(),
        format!(
            "A step of {} {unit} is {} of the critical batch of {}: twice the batch takes {} times the \
             {unit} and {} times the steps.",
            number(batch),
            number(share),
            number(critical),
            number(samples),
            number(steps),
            unit = run.unit
        ),
        remedy.into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn batches_far_from_the_critical_one_stand_out() {
        let with = |share: f64| {
            let mut run = example::run(100);
            let noise = serde_json::json!({
                "batch": 64, "critical": 64.0 / share, "share": share, "doubled_samples": 1.1, "doubled_steps": 0.55
            });
            run.summary.as_mut().unwrap().others.insert("noise_scale".into(), noise);
            ENTRY.find(&run)
        };
        let small = with(0.1).unwrap();
        assert!(small.what.starts_with("The batch may grow") && small.why.contains("critical batch of 640"));
        assert!(with(4.0).unwrap().what.contains("larger than"));
        assert_eq!((with(1.0), ENTRY.find(&example::run(100))), (None, None));
    }
}
