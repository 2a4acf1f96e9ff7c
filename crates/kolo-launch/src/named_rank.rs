//! Finds the rank that an error of Kolo names. A program that reports nothing to the launcher may still
//! print the error, in its own form (`rank 1 died`) or in that of Rust's `Debug`.

use kolo_comm::Rank;

/// Text after the rank in errors that name a culprit.
const PHRASES: [&str; 5] =
    [" died", " left the group while others", " gave up: ", " did not take part in ", " did not arrive at "];
/// Text before the rank in the `Debug` form of the same errors, without white space.
const DEBUG: [&str; 5] = [
    "Died{rank:Rank(", "Left{rank:Rank(", "Abandoned{rank:Rank(", "Timeout{rank:Rank(",
    "Missing{missing:[Rank(",
];

/// Returns the rank that the text names as the culprit; `None` if it names none.
pub(crate) fn named_rank(text: &str) -> Option<Rank> {
    let compact: String = text.split_whitespace().collect();
    let in_debug = DEBUG.iter().find_map(|before| first_number(compact.split_once(before)?.1));
    let before = |phrase: &&str| text.match_indices(*phrase).find_map(|(at, _)| last_ranks(&text[..at]));
    in_debug.or_else(|| PHRASES.iter().find_map(before)).map(Rank)
}

/// Returns the first of the ranks at the end of a text: `rank 1`, or `ranks 1, 2`.
fn last_ranks(text: &str) -> Option<usize> {
    let (_, numbers) = text.rsplit_once("rank")?;
    let numbers = numbers.strip_prefix('s').unwrap_or(numbers).strip_prefix(' ')?;
    let numbers: Option<Vec<usize>> = numbers.split(", ").map(|number| number.parse().ok()).collect();
    numbers?.first().copied()
}

fn first_number(text: &str) -> Option<usize> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kolo_comm::Error;

    use super::*;

    #[test]
    fn every_error_that_has_a_culprit_names_it() {
        let (rank, during, waited) = (Rank(12), "all-reduce".to_string(), Duration::from_secs(5));
        let address = ([127, 0, 0, 1], 1).into();
        let errors = [
            Error::Died { rank },
            Error::Left { rank, during: during.clone() },
            Error::Abandoned { rank, reason: "no space".into() },
            Error::Timeout { rank, during, waited },
            Error::Missing { missing: vec![rank], address, waited, refused: vec![] },
            Error::Missing { missing: vec![rank, Rank(13)], address, waited, refused: vec![] },
        ];
        for error in errors {
            assert_eq!(error.culprit(), Some(rank));
            for text in
                [format!("Error: epoch 3: {error}"), format!("{error:?}"), format!("Comm(\n{error:#?})")]
            {
                assert_eq!(named_rank(&text), Some(rank), "{text}");
            }
        }
    }

    #[test]
    fn other_texts_name_no_rank() {
        let mismatch = Error::UnknownRank { rank: Rank(3), world_size: 2 };
        for text in
            [mismatch.to_string().as_str(), "rank 3", "rank", "ranks died", "frank 3 diet", "no rank 3 ", ""]
        {
            assert_eq!(named_rank(text), None, "{text}");
        }
        assert_eq!(named_rank("on rank 1 of 2: rank 0 died"), Some(Rank(0)));
    }
}
