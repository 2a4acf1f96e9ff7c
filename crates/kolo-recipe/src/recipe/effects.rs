//! Settings that another setting keeps from having an effect.

use kolo_ddp::table::Value;
use kolo_ddp::{Sharding, is_in_memory, optimizer};
use kolo_run_folder::units::counted;

use super::{LearningRateSchedule, Recipe};

impl Recipe {
    /// Describes each setting that differs from its default and has no effect beside the others.
    pub fn without_effect(&self) -> Vec<String> {
        let (rate, precision) = (&self.rate, &self.precision);
        let Recipe { rate: usual_rate, precision: usual, .. } = Recipe::default();
        let changed = |option: &'static str, value: f64, default: f64, needed: &'static str| {
            (value != default).then(|| {
                format!("{option} {}: it has no effect without {needed}; leave it out", Value::Number(value))
            })
        };
        let mut found = Vec::new();
        if precision.compute != "f16" {
            let needed = "--precision f16";
            found.push(changed("--loss-scale", precision.scale, usual.scale, needed));
            found.push(changed("--loss-scale-growth", precision.growth, usual.growth, needed));
            found.push(changed("--loss-scale-backoff", precision.backoff, usual.backoff, needed));
            let interval = "--loss-scale-interval";
            found.push(changed(interval, precision.interval as f64, usual.interval as f64, needed));
        }
        if rate.schedule != LearningRateSchedule::Step {
            let needed = "--schedule step";
            found.push(changed("--lr-factor", rate.step_factor, usual_rate.step_factor, needed));
            let (epochs, default) = (rate.step_epochs as f64, usual_rate.step_epochs as f64);
            found.push(changed("--lr-step-epochs", epochs, default, needed));
        }
        if rate.schedule == LearningRateSchedule::Step && rate.step_epochs >= self.epochs {
            found.push(Some(format!(
                "--schedule step: the first cut is after {} (--lr-step-epochs), and the run has {}, so the rate stays \
                 constant; give fewer of them",
                counted(rate.step_epochs, "epoch"),
                counted(self.epochs, "epoch")
            )));
        }
        if rate.schedule != LearningRateSchedule::Poly {
            found.push(changed("--lr-power", rate.power, usual_rate.power, "--schedule poly"));
        }
        if self.ema_warmup && self.ema.is_none() {
            found.push(Some("--ema-warmup: it has no effect without --ema; leave it out".into()));
        }
        let (every, default) = (self.backup_steps as f64, Recipe::default().backup_steps as f64);
        if !self.has_private_state() {
            let needed = "residuals (--reduction), islands or delayed updates (--sync)";
            found.push(changed("--backup-steps", every, default, needed));
        }
        if let Some(coefficient) = self.unused_trust_coefficient() {
            found.push(Some(format!(
                "--trust-coefficient {coefficient}: it has no effect with --trust-ratio=false; leave it out"
            )));
        }
        if self.has_nesterov_without_momentum() {
            found.push(Some("--nesterov: it has no effect with --momentum 0; leave it out".into()));
        }
        if let Some(folder) = self.offload.as_ref().filter(|folder| is_in_memory(folder)) {
            found.push(Some(format!(
                "--offload {}: files there are in memory, so it saves none; give a folder on a disk",
                folder.display()
            )));
        }
        let sharding = self.sharding().unwrap_or_default();
        if sharding.divides_gradients() && self.shards > self.nproc && self.nproc > 1 {
            let saved = match sharding {
                Sharding::Parameters => "and saves memory for values and the optimizer's state only; give",
                _ => "so it saves no memory for them; give --shard optimizer, or",
            };
            found.push(Some(format!(
                "--shard {}: of several shards a worker has all gradients until the last one, {saved} --shards {}, which \
                 changes the result",
                self.shard, self.nproc
            )));
        }
        found.into_iter().flatten().collect()
    }

    /// True if a worker holds state that no other worker has, so that copies of it are made.
    fn has_private_state(&self) -> bool {
        let traits = self.sync.mode.traits();
        // A reduction of the program's own may keep state.
        traits.is_delayed
            || traits.rounds.is_some()
            || self.own.reduction.is_some()
            || self.reduction().is_ok_and(|reduction| reduction.keeps_state())
    }

    /// Returns the coefficient of trust ratios, if another one than the default was given and there are none.
    fn unused_trust_coefficient(&self) -> Option<Value> {
        let settings = &self.optimizer.0.settings;
        let entry = optimizer::find(&self.optimizer.0.name).ok()?;
        let default = entry.setting("trust_coefficient")?.default;
        let is_off = settings.get("trust_ratio") == Some(Value::Flag(false)) && self.groups.is_empty();
        settings.get("trust_coefficient").filter(|given| is_off && *given != default)
    }

    /// True if Nesterov's momentum was asked for, which is not the optimizer's default, and there is none.
    fn has_nesterov_without_momentum(&self) -> bool {
        let settings = &self.optimizer.0.settings;
        let by_default = optimizer::find(&self.optimizer.0.name).is_ok_and(|entry| {
            entry.setting("nesterov").is_some_and(|flag| flag.default == Value::Flag(true))
        });
        !by_default
            && settings.get("nesterov") == Some(Value::Flag(true))
            && settings.get("momentum") == Some(Value::Number(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_ddp::table::Choice;

    fn told(change: impl FnOnce(&mut Recipe)) -> Vec<String> {
        let mut recipe = Recipe::default();
        change(&mut recipe);
        recipe.check().unwrap();
        recipe.without_effect()
    }

    #[test]
    fn each_setting_without_effect_is_named_with_what_it_needs() {
        let none: [&str; 0] = [];
        assert_eq!(told(|_| ()), none);
        let offloads = |folder: &str| {
            let folder = folder.into();
            told(|recipe: &mut Recipe| recipe.offload = Some(folder))
        };
        assert_eq!(offloads("/proc"), none);
        assert_eq!(
            offloads("/dev/shm"),
            ["--offload /dev/shm: files there are in memory, so it saves none; give a folder on a disk"]
        );
        let scale = told(|recipe| recipe.precision.scale = 3.0);
        assert_eq!(scale, ["--loss-scale 3: it has no effect without --precision f16; leave it out"]);
        assert_eq!(
            told(|recipe| (recipe.precision.scale, recipe.precision.compute) = (3.0, "f16".into())),
            none
        );
        let rate = told(|recipe| (recipe.rate.power, recipe.rate.step_factor) = (3.0, 0.5));
        assert_eq!(
            rate,
            [
                "--lr-factor 0.5: it has no effect without --schedule step; leave it out",
                "--lr-power 3: it has no effect without --schedule poly; leave it out"
            ]
        );
        let step = LearningRateSchedule::Step;
        assert_eq!(told(|recipe| (recipe.rate.schedule, recipe.rate.step_epochs) = (step, 2)), none);
        let never = told(|recipe| recipe.rate.schedule = step);
        assert_eq!(
            never,
            [
                "--schedule step: the first cut is after 30 epochs (--lr-step-epochs), and the run has 8 epochs, so \
              the rate stays constant; give fewer of them"
            ]
        );
        assert_eq!(told(|recipe| (recipe.rate.schedule, recipe.epochs) = (step, 31)), none);
        let copies = |reduction: &str, sync: &str| {
            told(|recipe| {
                recipe.backup_steps = 7;
                recipe.reduction = reduction.into();
                recipe.sync.mode = sync.parse().unwrap();
            })
        };
        assert_eq!(
            copies("sum", "every-step"),
            [
                "--backup-steps 7: it has no effect without residuals (--reduction), islands or delayed updates \
              (--sync); leave it out"
            ]
        );
        for (reduction, sync) in [("top-k", "every-step"), ("sum", "local:H=4"), ("sum", "delayed:1")] {
            assert_eq!(copies(reduction, sync), none, "{reduction} {sync}");
        }
        let trust = |ratio: bool| {
            let choice = Choice::new("lars").with("trust_ratio", ratio).with("trust_coefficient", 0.5);
            told(|recipe| recipe.optimizer.0 = choice)
        };
        assert_eq!(
            trust(false),
            ["--trust-coefficient 0.5: it has no effect with --trust-ratio=false; leave it out"]
        );
        assert_eq!(trust(true), none);
        let warmup = |ema| told(|recipe| (recipe.ema, recipe.ema_warmup) = (ema, true));
        assert_eq!(warmup(None), ["--ema-warmup: it has no effect without --ema; leave it out"]);
        assert_eq!(warmup(Some(0.9)), none);
        let nesterov = |name: &str, momentum: f64| {
            let choice = Choice::new(name).with("nesterov", true).with("momentum", momentum);
            told(|recipe| recipe.optimizer.0 = choice)
        };
        assert_eq!(nesterov("sgd", 0.0), ["--nesterov: it has no effect with --momentum 0; leave it out"]);
        assert_eq!(nesterov("sgd", 0.9), none);
        assert_eq!(nesterov("muon", 0.0), none, "its default");
        let divided = |shard: &str, shards, nproc| {
            told(|recipe| (recipe.shard, recipe.shards, recipe.nproc) = (shard.into(), shards, nproc))
        };
        assert!(
            divided("gradients", 8, 4)[0]
                .ends_with("give --shard optimizer, or --shards 4, which changes the result")
        );
        assert_eq!(
            divided("parameters", 8, 4),
            [
                "--shard parameters: of several shards a worker has all gradients until the last one, and saves memory for values \
              and the optimizer's state only; give --shards 4, which changes the result"
            ]
        );
        assert_eq!(divided("gradients", 4, 4), none);
        assert_eq!(divided("gradients", 4, 1), none);
        assert_eq!(divided("optimizer", 8, 4), none);
    }
}
