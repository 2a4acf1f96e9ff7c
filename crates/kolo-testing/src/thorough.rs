//! The extent of tests that could try more.

/// Returns true if tests try all that they can, as with `.ci/slow`: if `THOROUGH_TESTS` is set. Otherwise they
/// take a selection that has every member of each table.
pub fn is_thorough() -> bool {
    std::env::var_os("THOROUGH_TESTS").is_some()
}
