//! Warnings during a run.

/// Distinct warnings with their counts: a full disk gives the same one at every step.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Vec<(String, usize)>);

impl Warnings {
    /// Warns the user, by the program's logger or else on stderr, and keeps the warning for the summary.
    pub(crate) fn tell(&mut self, words: String) {
        kolo_ddp::checkpoint::tell(&words);
        self.keep(words);
    }

    /// True if the user has received a warning that begins with `words`.
    pub(crate) fn has(&self, words: &str) -> bool {
        self.0.iter().any(|(known, _)| known.starts_with(words))
    }

    pub(crate) fn keep(&mut self, words: String) {
        match self.0.iter_mut().find(|(known, _)| *known == words) {
            Some((_, times)) => *times += 1,
            None => self.0.push((words, 1)),
        }
    }

    pub(crate) fn append(&mut self, other: Warnings) {
        for (words, times) in other.0 {
            (0..times).for_each(|_| self.keep(words.clone()));
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |(words, times): &(String, usize)| match times {
            1 => words.clone(),
            _ => format!("{words} ({times} times)"),
        };
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_is_counted() {
        let (mut all, mut more) = (Warnings::default(), Warnings::default());
        ["full", "slow", "full"].into_iter().for_each(|words| all.keep(words.into()));
        more.keep("full".into());
        all.append(more);
        assert_eq!(all.lines(), ["full (3 times)", "slow"]);
    }
}
