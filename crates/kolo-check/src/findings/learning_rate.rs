//! A learning rate that is unusual for the optimizer.

use kolo_report::units::number;

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check = Check {
    name: "learning rate",
    about: "a learning rate far from those that the optimizer is used with",
    find,
};

struct Usual {
    optimizer: &'static str,
    least: f64,
    most: f64,
    /// Source of the values, and their effect.
    source: &'static str,
}

const ADAM: &str = "A step of Adam moves each weight by up to about the rate, however small its gradient (Kingma & Ba 2015, section \
                    2.1); 0.001 is their value, and transformers take less";

/// Wide bounds, which exclude mistakes but no deliberate choice.
const USUAL: &[Usual] = &[
    Usual {
        optimizer: "sgd",
        least: 1e-5,
        most: 10.0,
        source: "Goyal et al. 2017 (section 5.1) train with 0.1 for 256 images and with 3.2 for 8,192",
    },
    Usual { optimizer: "adam", least: 1e-7, most: 2e-2, source: ADAM },
    Usual { optimizer: "adamw", least: 1e-7, most: 2e-2, source: ADAM },
    Usual {
        optimizer: "lion",
        least: 1e-8,
        most: 5e-3,
        source: "A step of Lion moves each weight by the rate itself; it takes 3 to 10 times less than AdamW (Chen et al. 2023, section 5)",
    },
    Usual {
        optimizer: "lamb",
        least: 1e-6,
        most: 5e-2,
        source: "LAMB's rate is the part of its norm by which a tensor moves in a step (You et al. 2020), whose largest is 0.04",
    },
    Usual {
        optimizer: "muon",
        least: 1e-6,
        most: 0.2,
        source: "A step of Muon is orthogonal, of the rate's size in every direction; 0.02 is usual (Jordan et al. 2024)",
    },
];

fn find(facts: &Facts) -> Option<Found> {
    let settings = &facts.settings;
    let usual = USUAL.iter().find(|usual| usual.optimizer == settings.optimizer)?;
    let rate = settings.rate.top;
    if (usual.least..=usual.most).contains(&rate) {
        return None;
    }
    let (how, end) = match rate > usual.most {
        true => ("high", "The loss would not fall, or become no number"),
        false => ("low", "The weights would hardly move"),
    };
    Some((
        Severity::Warning,
        format!("a learning rate of {} is {how} for {}", number(rate), usual.optimizer),
        format!("{}. {end}.", usual.source),
        format!("Give --lr between {} and {}, and try a few.", number(usual.least), number(usual.most)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_rate_of_one_optimizer_is_high_for_another() {
        let mut facts = example::one_host(2);
        for usual in USUAL {
            facts.settings.optimizer = usual.optimizer.into();
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
