#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kolo_comm::fuzzing::mailbox_slot(bytes));
