//! The known name that was probably meant by an unknown one.

/// Returns the known name that is nearest to `name`, if so few letters differ that it was probably meant:
/// one in four, and at least one.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = known.into_iter().map(|known| (strsim::damerau_levenshtein(name, known), known));
    let (distance, known) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= (name.len() / 4).max(1)).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_seen_and_another_word_is_not() {
        let known = ["rate.lr", "rate.schedule", "epochs", "seed"];
        for (name, found) in [
            ("epochs", Some("epochs")),
            ("epoch", Some("epochs")),
            ("rate.shcedule", Some("rate.schedule")),
            ("sede", Some("seed")),
            ("dropout", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), found, "{name}");
        }
    }
}
