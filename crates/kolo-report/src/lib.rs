//! One page about the runs of `kolo train`: their limits, their curves, and the use of their time.
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
//! `kolo-run-folder` reads a [`Run`](kolo_run_folder::Run) from its folder. [`findings`] are pure
//! functions of a run; the page shows both. The page is one file that loads nothing, runs no script, and
//! treats no text of a file as markup.
//!
//! | module | idea |
//! |---|---|
//! | `analysis` | figures derived from several figures of a run |
//! | [`findings`] | findings in sentences, one file each |
//! | `predicted` | the prediction of `kolo plan` beside the measurement |
//! | `html` | markup in which every string of a file is escaped text |
//! | `figures` | axes, marks, tables |
//! | `page` | the sections and their order |
//! | `report` | from run folders to a file |
//! | [`units`] | numbers as text with units |

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

pub use error::Error;
pub use kolo_run_folder::units;
pub use predicted::PredictedStep;
pub use report::Report;
