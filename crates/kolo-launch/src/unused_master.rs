//! A master in the environment that nobody reads.

use kolo_comm::env;

/// Returns a warning for each variable of a master, in the environment of a command that starts its own
/// workers: it counts for workers that a launcher has started only. `variable` reads the environment.
pub fn unused_master(variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let given =
        [env::MASTER_ADDR, env::MASTER_PORT].into_iter().filter_map(|name| Some((name, variable(name)?)));
    let words = |(name, value)| {
        format!(
            "{name}={value} is not used: without RANK, this command starts its own workers on this node \
             (--master-port gives their port)"
        )
    };
    given.map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_without_a_rank_is_not_ignored_in_silence() {
        let words = unused_master(|name| (name == env::MASTER_PORT).then(|| "abc".into()));
        assert!(
            words.len() == 1 && words[0].starts_with("MASTER_PORT=abc is not used: without RANK"),
            "{words:?}"
        );
        assert!(unused_master(|_| None).is_empty());
    }
}
