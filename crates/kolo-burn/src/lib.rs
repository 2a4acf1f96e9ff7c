//! kolo-burn

pub mod data;
pub mod models;
