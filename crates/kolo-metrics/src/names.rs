//! Names of a program's metrics and units: any text. They become columns, fields, gauges and tags, where each
//! gets a legal name, and must be unique.

use kolo_run_folder::STEP_FIELDS;

use crate::metric::Metric;
use kolo_recipe::Error;

/// Replaces characters that Prometheus does not accept in a name by `_`.
pub(crate) fn plain(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}

/// Replaces characters that TensorBoard does not accept in a tag by `_`. Names with the same tag have the
/// same [`plain`] name, too.
pub(crate) fn tag(name: &str) -> String {
    let is_legal = |letter: char| letter.is_alphanumeric() || "-/._ ".contains(letter);
    name.chars().map(|letter| if is_legal(letter) { letter } else { '_' }).collect()
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
        if name.is_empty() {
            return refused(what, name, "a name may not be empty".into());
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
    fn any_text_is_a_name_unless_it_is_taken() {
        let odd = ["top 5", "F1 (macro)", "a, b", "\"quoted\"", "two\nlines", " spaced "].map(metric);
        check_names("a,b", &[&[Metric::ACCURACY, Metric::LOSS], &odd[..]].concat()).unwrap();
        assert_eq!(odd.map(|metric| tag(metric.name))[3..], ["_quoted_", "two_lines", " spaced "]);
        assert_eq!(plain("F1 (ä)"), "F1____");
        assert_eq!(odd[4].label(), "test two\\nlines");
        for (unit, metrics, words) in [
            ("images", &[metric("")][..], "may not be empty"),
            ("images", &[Metric::LOSS, Metric::LOSS], "\"loss\": another metric has that name"),
            (
                "images",
                &[metric("top-5"), metric("top_5")],
                "\"top_5\": the metric called \"top-5\" has the same name in Prometheus",
            ),
            ("step", &[], "counting \"step\": steps.jsonl has a field of that name"),
            ("loss", &[], "counting \"loss\": steps.jsonl has a field of that name"),
            ("", &[], "may not be empty"),
            (
                "images",
                &[metric("a,b"), metric("a\nb")],
                "\"a\\nb\": the metric called \"a,b\" has the same name in Prometheus",
            ),
        ] {
            let error = check_names(unit, metrics).unwrap_err();
            assert!(error.is_input() && error.to_string().contains(words), "{error}");
        }
    }
}
