//! Counts and ranks in words, for messages.

use std::fmt::Display;

use crate::rank::Rank;

/// Formats a count with its noun: `1 worker`, `2 workers`, `0 batches`.
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    let is_one = count == "1";
    if is_one { format!("{count} {noun}") } else { format!("{count} {}", plural(noun)) }
}

/// Returns the plural of a regular noun.
fn plural(noun: &str) -> String {
    let ends_with = |ends: &[&str]| ends.iter().any(|end| noun.ends_with(end));
    match noun.strip_suffix('y') {
        Some(stem) if !ends_with(&["ay", "ey", "oy"]) => format!("{stem}ies"),
        _ if ends_with(&["s", "x", "tch", "nch", "sh"]) => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

/// Joins the first `most` names, and counts the others: `a, b and 3 more`.
pub fn first_names(names: impl IntoIterator<Item = impl Display>, most: usize) -> String {
    let mut names = names.into_iter().map(|name| name.to_string());
    let first = names.by_ref().take(most).collect::<Vec<_>>().join(", ");
    match names.count() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Formats ranks in ascending order: `rank 3`, or `ranks 0, 2, 5-7`.
pub fn ranks(ranks: &[Rank]) -> String {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", numbers(&ranks.iter().map(|rank| rank.0).collect::<Vec<_>>()))
}

/// Formats numbers in ascending order: `0, 2, 5-7`.
pub fn numbers(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let run = |(first, last): (usize, usize)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    };
    runs.into_iter().map(run).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_the_form_of_the_noun_that_they_need() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "worker")), ["0 workers", "1 worker", "2 workers"]);
        for (noun, two) in [
            ("training sample", "2 training samples"),
            ("process", "2 processes"),
            ("batch", "2 batches"),
            ("epoch", "2 epochs"),
            ("box", "2 boxes"),
            ("copy", "2 copies"),
            ("day", "2 days"),
        ] {
            assert_eq!([counted(2u64, noun), counted(1u64, noun)], [two.into(), format!("1 {noun}")]);
        }
        assert_eq!([1.0, 1.5].map(|hours| counted(hours, "hour")), ["1 hour", "1.5 hours"]);
        assert_eq!(counted("1,000", "step"), "1,000 steps");
    }

    #[test]
    fn many_names_are_counted() {
        let all = ["a", "b", "c", "d"];
        let named = [0, 2, 3, 4].map(|names| first_names(&all[..names], 3));
        assert_eq!(named, ["", "a, b", "a, b, c", "a, b, c and 1 more"]);
    }

    #[test]
    fn ranks_are_listed_briefly() {
        for (numbers, text) in [
            (&[3][..], "rank 3"),
            (&[0, 1], "ranks 0, 1"),
            (&[0, 2, 3], "ranks 0, 2, 3"),
            (&[0, 2, 3, 4, 9], "ranks 0, 2-4, 9"),
        ] {
            let numbers: Vec<Rank> = numbers.iter().copied().map(Rank).collect();
            assert_eq!(ranks(&numbers), text);
        }
    }
}
