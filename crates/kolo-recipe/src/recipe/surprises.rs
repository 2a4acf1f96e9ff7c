//! Settings that do less than they seem to.

use kolo_run_folder::units::counted;

use super::Recipe;

impl Recipe {
    /// Settings that are valid but do less than they seem to, with `samples` to train on. Of a run that
    /// continues (`begins` is false) the advice leaves out what cannot change any more.
    pub fn surprises(&self, samples: usize, begins: bool) -> Vec<String> {
        let (shards, workers) = (self.shards, self.nproc);
        let mut found = self.without_effect();
        if shards < workers {
            let idle = workers - shards;
            let advice = match begins {
                true => format!("--shards {workers} or a multiple of it, which changes the result"),
                false => format!("--nproc {shards}"),
            };
            found.push(format!(
                "--shards {shards}: {idle} of {} {} nothing to do; give {advice}",
                counted(workers, "worker"),
                if idle == 1 { "has" } else { "have" }
            ));
        }
        let redundancy = self.redundancy;
        if self.is_divided() && redundancy > 1 && workers <= redundancy {
            found.push(format!(
                "--redundancy {redundancy} with {}: each holds all of the state, so --shard saves no memory; \
                 give --nproc {} or more",
                counted(workers, "worker"),
                redundancy + 1
            ));
        }
        let mode = &self.sync.mode;
        if mode.traits().staleness_bound.is_some() && self.checkpoint_steps.is_none() {
            let limit = self.max_hours.map_or(String::new(), |hours| format!(", or by --max-hours {hours}"));
            found.push(format!(
                "--sync {mode}: a run that is asked to end, by a signal{limit}, can save only where all workers meet, at the end of an \
                 epoch; give --checkpoint-steps for more such places"
            ));
        }
        let plan = self.plan(samples).ok();
        if let (Some(plan), Some(limit)) = (&plan, self.steps)
            && limit > plan.planned_steps
        {
            found.push(format!(
                "--steps {limit}: the run ends before, after the {} of its {}; give more --epochs",
                counted(plan.planned_steps, "step"),
                counted(self.epochs, "epoch")
            ));
        }
        if !begins {
            return found;
        }
        if ["csv:", "parquet:"].iter().any(|kind| self.data.starts_with(kind)) && self.model != "mlp" {
            found.push(format!(
                "--model {}: its convolutions are for images; for the rows of a table give --model mlp",
                self.model
            ));
        }
        let batch = shards.saturating_mul(self.batch_size);
        if batch > samples {
            found.push(format!(
                "a step of {} × {} takes the whole data of {}; give a smaller --batch-size",
                counted(shards, "shard"),
                counted(self.batch_size, "sample"),
                counted(samples, "sample")
            ));
        }
        if let Some(plan) = plan.as_ref().filter(|plan| plan.warmup_steps > plan.steps) {
            found.push(format!(
                "--warmup-steps {}: the run has {}, in which the learning rate only rises and does not reach {}; give \
                 --warmup-steps {}",
                plan.warmup_steps,
                counted(plan.steps, "step"),
                plan.top_rate,
                plan.steps / 10
            ));
        }
        found.extend(plan.and_then(|plan| self.ema_remembers_the_start(plan.steps)));
        found
    }
}

#[cfg(test)]
mod tests {
    use crate::recipe::RateConfig;

    use super::*;

    fn surprises_of(config: &Recipe, samples: usize, begins: bool) -> Vec<String> {
        config.surprises(samples, begins)
    }

    #[test]
    fn settings_that_do_less_than_they_seem_to_are_reported() {
        let rate = RateConfig { warmup_steps: 8, ..RateConfig::default() };
        let usual = Recipe { rate, ..Recipe::default() };
        let config = |shards, batch_size, nproc| Recipe { shards, batch_size, nproc, ..usual.clone() };
        assert_eq!(surprises_of(&config(2, 50, 2), 100, true), Vec::<String>::new());
        let idle = "--shards 1: 2 of 3 workers have nothing to do; give --shards 3 or a multiple of it, which changes the result";
        assert_eq!(surprises_of(&config(1, 50, 3), 100, true), [idle]);
        assert!(
            surprises_of(&config(2, 51, 2), 100, true)[0].contains("takes the whole data of 100 samples")
        );
        let rises = "--warmup-steps 8: the run has 7 steps, in which the learning rate only rises and does not reach 0.1; give \
             --warmup-steps 0";
        assert_eq!(surprises_of(&Recipe { epochs: 7, ..config(2, 50, 2) }, 100, true), [rises]);
        let limited = Recipe { steps: Some(7), ..config(2, 50, 2) };
        assert_eq!(surprises_of(&limited, 100, true), [rises]);
        assert_eq!(surprises_of(&limited, 100, false), Vec::<String>::new(), "its warm-up cannot change");
        assert!(surprises_of(&config(1, 50, 3), 100, false)[0].ends_with("nothing to do; give --nproc 1"));
        let steps = |steps| Recipe { epochs: 9, steps: Some(steps), ..config(2, 50, 2) };
        assert_eq!(surprises_of(&steps(9), 100, true), Vec::<String>::new());
        let ends = "--steps 10: the run ends before, after the 9 steps of its 9 epochs; give more --epochs";
        assert_eq!([true, false].map(|begins| surprises_of(&steps(10), 100, begins)), [[ends], [ends]]);
        let mut stale = Recipe { max_hours: Some(0.5), ..config(2, 50, 2) };
        stale.sync.mode = "stale:3".parse().unwrap();
        assert!(surprises_of(&stale, 100, true)[0].starts_with(
            "--sync stale:K=3: a run that is asked to end, by a signal, or by --max-hours 0.5, can save only"
        ));
        assert_eq!(
            surprises_of(&Recipe { checkpoint_steps: Some(5), ..stale }, 100, true),
            Vec::<String>::new()
        );
        let table =
            |model: &str| Recipe { data: "csv:t.csv".into(), model: model.into(), ..config(2, 50, 2) };
        assert!(
            surprises_of(&table("small"), 100, true)[0]
                .starts_with("--model small: its convolutions are for images")
        );
        assert_eq!(surprises_of(&table("mlp"), 100, true), Vec::<String>::new());
        let mut scaled = config(2, 50, 2);
        scaled.precision.scale = 3.0;
        assert!(surprises_of(&scaled, 100, true)[0].starts_with("--loss-scale 3: it has no effect"));
    }
}
