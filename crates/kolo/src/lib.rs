//! kolo
