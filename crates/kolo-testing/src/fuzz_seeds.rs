//! Checks of the seeds of every crate's fuzz targets.

type Target<'a> = (&'a str, fn(&[u8]));

/// The name of a seed's target, its own, and the bytes.
type Seed<'a> = (&'a str, &'a str, Vec<u8>);

/// Asserts that every target has seeds, and decodes all of them without a panic.
pub fn assert_seeds_are_taken(targets: &[Target<'_>], seeds: &[Seed<'_>]) {
    for (name, decode) in targets {
        let mut own = seeds.iter().filter(|(target, _, _)| target == name).peekable();
        assert!(own.peek().is_some(), "{name}");
        own.for_each(|(_, _, bytes)| decode(bytes));
    }
}
