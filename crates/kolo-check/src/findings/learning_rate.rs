//! A learning rate that is unusual for the optimizer.

use kolo_ddp::optimizer::{self, Settings, UsualRates};
use kolo_report::units::number;

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check = Check {
    name: "learning rate",
    about: "a learning rate far from those that the optimizer is used with",
    find,
};

fn find(facts: &Facts) -> Option<Found> {
    let settings = &facts.settings;
    let UsualRates { least, most, source } = usual(&settings.optimizer)?;
    let rate = settings.rate.top;
    if (least..=most).contains(&rate) {
        return None;
    }
    let (how, end) = match rate > most {
        true => ("high", "The loss would not fall, or become no number"),
        false => ("low", "The weights would hardly move"),
    };
    Some((
        Severity::Warning,
        format!("a learning rate of {} is {how} for {}", number(rate), settings.optimizer),
        format!("{source}. {end}."),
        format!("Give --lr between {} and {}, and try a few.", number(least), number(most)),
    ))
}

/// Returns the usual rates of an optimizer of the table, with its default settings.
fn usual(optimizer: &str) -> Option<UsualRates> {
    optimizer::named(optimizer, &Settings::default()).ok()?.usual_rates()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use kolo_ddp::optimizer::OPTIMIZERS;

    #[test]
    fn the_rate_of_one_optimizer_is_high_for_another() {
        let mut facts = example::one_host(2);
        for entry in OPTIMIZERS {
            let usual = usual(entry.name).unwrap();
            facts.settings.optimizer = entry.name.into();
            let mut found = |rate| {
                facts.settings.rate.top = rate;
                find(&facts)
            };
            assert!(found(2.0 * usual.most).unwrap().1.contains("is high for"));
            assert!(found(0.5 * usual.least).unwrap().1.contains("is low for"));
            assert_eq!(found((usual.least * usual.most).sqrt()), None);
        }
        facts.settings.optimizer = "adamw".into();
        facts.settings.rate.top = 0.1;
        assert_eq!(find(&facts).unwrap().1, "a learning rate of 0.1 is high for adamw");
    }
}
