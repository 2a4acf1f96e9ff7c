//! One page about the runs that `kolo train` has written: what limits them, their curves, where their time
//! goes.
//!
//! ```
//! use kolo_report::Report;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = tempfile::tempdir()?;
//! # let folder = place.path().join("runs/0001");
//! # std::fs::create_dir_all(&folder)?;
//! # std::fs::write(folder.join("config.toml"), "model = \"small\"\n")?;
//! let report = Report::read(&[folder])?;
//! for line in report.headlines() {
//!     println!("{line}");
//! }
//! report.write(&place.path().join("report.html"))?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Run`](kolo_run_folder::Run) is read from its folder by `kolo-run-folder`; [`findings`] are pure
//! functions of it; pictures and the page are made of both. The page is one file: it asks for nothing, runs
//! no script, and takes no word of a file for markup.
//!
//! | module | idea |
//! |---|---|
//! | `analysis` | what the figures say together |
//! | [`findings`] | what stands out, in words: a file each |
//! | `predicted` | what `kolo plan` said, and what came of it |
//! | `html` | markup into which no string of a file gets but as text |
//! | `figures` | axes, marks, tables |
//! | `page` | the sections and their order |
//! | `report` | runs in, file out |
//! | [`units`] | figures in words |

mod analysis;
mod error;
#[cfg(test)]
mod example;
mod figures;
pub mod findings;
mod html;
mod page;
mod predicted;
mod report;
mod statistics;
pub mod units;

pub use error::Error;
pub use predicted::PredictedStep;
pub use report::Report;
