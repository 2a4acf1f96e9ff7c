//! Deaths of a worker at moments of an update that no signal from outside can hit, for `kolo chaos` and
//! tests. With [`FOLDER`] in the environment, a worker looks there when an update begins: a file named by its
//! process holds an [`Aim`], the moment at which it kills itself.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::process::{Signal, getpid, kill_process};
use serde::Serialize;

/// Variable with the folder of these files.
pub const FOLDER: &str = "KOLO_VERIFY_AIMS";

/// Moment of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// The sums of a block are in the memory; its journal is not written.
    BeforeJournal,
    /// The journal is whole; the block is as it was.
    AfterJournal,
    /// Half of the block has changed.
    InBlock,
    /// The block has changed; it is not marked as done.
    AfterBlock,
    /// All blocks of this worker are done; the others may still step theirs.
    AfterBlocks,
    /// All blocks of all workers are done; this worker still reads the values before the update.
    BeforeSwitch,
}

impl Moment {
    /// All moments, with their names.
    pub const ALL: [(&str, Moment); 6] = [
        ("before-journal", Moment::BeforeJournal),
        ("after-journal", Moment::AfterJournal),
        ("in-block", Moment::InBlock),
        ("after-block", Moment::AfterBlock),
        ("after-blocks", Moment::AfterBlocks),
        ("before-switch", Moment::BeforeSwitch),
    ];

    /// Name of the moment.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, moment)| *moment == self).map_or("", |(name, _)| name)
    }

    fn is_of_block(self) -> bool {
        !matches!(self, Moment::AfterBlocks | Moment::BeforeSwitch)
    }
}

/// Moment at which a worker dies in its next update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Aim {
    /// The moment.
    pub moment: Moment,
    /// Number of blocks that it steps before, or of all of its blocks but one if that is less.
    pub blocks: usize,
    /// True if it dies in an update that it completes after another worker's death.
    pub completes: bool,
}

/// Text of the file, such as `in-block 1` or `in-block 0 completes`.
impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Aim { moment, blocks, completes } = self;
        write!(f, "{} {blocks}{}", moment.name(), if *completes { " completes" } else { "" })
    }
}

impl FromStr for Aim {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default();
        let found = Moment::ALL.into_iter().find(|(other, _)| *other == name);
        let (_, moment) = found.ok_or_else(|| format!("`{name}` is no moment of an update"))?;
        let blocks = words.next().and_then(|word| word.parse().ok());
        let blocks = blocks.ok_or_else(|| format!("`{text}` needs a number of blocks"))?;
        match (words.next(), words.next()) {
            (None, _) => Ok(Aim { moment, blocks, completes: false }),
            (Some("completes"), None) => Ok(Aim { moment, blocks, completes: true }),
            (Some(word), _) => Err(format!("`{text}` has `{word}`, which means nothing")),
        }
    }
}

impl Aim {
    /// Reads the aim at this process in an update of so many own blocks; `None` if there is none.
    pub(crate) fn read(blocks: usize, completes: bool) -> Option<Aim> {
        let aim: Aim = std::fs::read_to_string(file()?).ok()?.parse().ok()?;
        let blocks = aim.blocks.min(blocks.checked_sub(1)?);
        (aim.completes == completes).then_some(Aim { blocks, ..aim })
    }

    /// Returns true if it is this moment, after so many blocks.
    pub(crate) fn is_at(&self, moment: Moment, blocks: usize) -> bool {
        self.moment == moment && (self.blocks == blocks || !moment.is_of_block())
    }
}

/// File with the aim at this process.
fn file() -> Option<PathBuf> {
    Some(Path::new(&std::env::var_os(FOLDER)?).join(std::process::id().to_string()))
}

/// Ends this process as SIGKILL from outside does. Its file vanishes before, so whoever aims knows that it
/// was hit.
pub(crate) fn die() -> ! {
    let _ = file().map(std::fs::remove_file);
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_read_as_it_was_written() {
        for (name, moment) in Moment::ALL {
            assert_eq!(moment.name(), name);
            for completes in [false, true] {
                let aim = Aim { moment, blocks: 3, completes };
                assert_eq!(aim.to_string().parse(), Ok(aim));
                assert!(aim.is_at(moment, 3) && aim.is_at(moment, 2) != moment.is_of_block());
            }
        }
        for text in ["", "in-block", "in-block x", "never 0", "in-block 0 repeats", "in-block 0 completes 1"]
        {
            assert!(text.parse::<Aim>().is_err(), "{text}");
        }
    }
}
