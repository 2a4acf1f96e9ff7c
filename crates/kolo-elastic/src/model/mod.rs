//! Rules and protocol, run through orders of events by Stateright (stateright.rs).

mod rules;
