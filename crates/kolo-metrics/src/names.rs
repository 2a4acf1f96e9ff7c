//! Names of a program's metrics and units. They become columns, fields, gauges and tags, so each must be
//! valid there and unique.

use kolo_run_folder::STEP_FIELDS;

use crate::metric::Metric;
use kolo_recipe::Error;

/// Characters that end a cell or a line of `metrics.csv`, or begin a quoted one.
const CSV: [char; 3] = [',', '"', ';'];

/// Replaces characters that Prometheus does not accept in a name by `_`.
pub(crate) fn plain(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}

/// Refuses invalid or ambiguous names of metrics and of the loss's unit.
///
/// # Errors
///
/// A name is empty, invalid or taken.
pub fn check_names(unit: &str, metrics: &[Metric]) -> Result<(), Error> {
    const METRIC: &str = "the metric called";
    const UNIT: &str = "counting";
    let refused = |what, name: &str, problem: String| Err(Error::setting(what, format!("{name:?}"), problem));
    for (what, name) in [(UNIT, unit)].into_iter().chain(metrics.iter().map(|metric| (METRIC, metric.name))) {
        if name.trim() != name || name.is_empty() {
            return refused(what, name, "a name may not be empty, nor begin or end with a space".into());
        }
        if let Some(letter) = name.chars().find(|letter| letter.is_control() || CSV.contains(letter)) {
            return refused(what, name, format!("a name in metrics.csv may not contain {letter:?}"));
        }
    }
    if STEP_FIELDS.contains(&unit) {
        return refused(UNIT, unit, "steps.jsonl has a field of that name; take another one".into());
    }
    for (at, metric) in metrics.iter().enumerate() {
        let same = |other: &&Metric| plain(other.name) == plain(metric.name);
        if let Some(other) = metrics[..at].iter().find(same) {
            let other = match other.name == metric.name {
                true => "another metric has that name".into(),
                false => format!("the metric called {:?} has the same name in Prometheus", other.name),
            };
            return refused(METRIC, metric.name, format!("{other}; take another one"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn metric(name: &'static str) -> Metric {
        Metric::higher_is_better(name)
    }

    #[test]
    fn names_that_are_none_or_taken_are_refused_with_the_reason() {
        check_names("images", &[Metric::ACCURACY, Metric::LOSS, metric("top 5"), metric("F1 (macro)")])
            .unwrap();
        for (unit, metrics, words) in [
            (
                "images",
                &[metric("top,5")][..],
                "the metric called \"top,5\": a name in metrics.csv may not contain ','",
            ),
            ("images", &[metric("top\n5")], "\"top\\n5\": a name in metrics.csv may not contain '\\n'"),
            ("images", &[metric("top \"5\"")], "may not contain '\"'"),
            ("images", &[metric("")], "may not be empty"),
            ("images", &[metric("loss ")], "begin or end with a space"),
            ("images", &[Metric::LOSS, Metric::LOSS], "\"loss\": another metric has that name"),
            (
                "images",
                &[metric("top-5"), metric("top_5")],
                "\"top_5\": the metric called \"top-5\" has the same name in Prometheus",
            ),
            ("step", &[], "counting \"step\": steps.jsonl has a field of that name"),
            ("loss", &[], "counting \"loss\": steps.jsonl has a field of that name"),
            ("a,b", &[], "counting \"a,b\": a name in metrics.csv may not contain ','"),
        ] {
            let error = check_names(unit, metrics).unwrap_err();
            assert!(error.is_input() && error.to_string().contains(words), "{error}");
        }
    }
}
