//! Trials of a job: it runs in several ways, and each must end in the same bits.
//!
//! [`verify`](mod@verify) runs it with other numbers of workers, buckets, transports and algorithms;
//! [`chaos`](mod@chaos) injects faults. The job is `kolo train`, or any program that trains by Kolo, and
//! every run is a process of its own. [`trial_images`] and [`trial_texts`] are its samples where it has none.

pub mod chaos;
mod running;
pub mod trial_images;
pub mod trial_texts;
pub mod verify;
