//! The extent of tests that could try more.

/// Returns true if tests try all that they can, as with `.ci/slow`: if `THOROUGH_TESTS` is set. Otherwise they
/// take a selection that has every member of each table.
pub fn is_thorough() -> bool {
    std::env::var_os("THOROUGH_TESTS").is_some()
}

/// Returns all cases of a thorough test, and otherwise the first `quick` ones: each case takes whole jobs, and
/// the first ones have to fail for whatever breaks often.
pub fn selected<T, const N: usize>(quick: usize, cases: [T; N]) -> impl Iterator<Item = T> {
    cases.into_iter().take(if is_thorough() { N } else { quick })
}
