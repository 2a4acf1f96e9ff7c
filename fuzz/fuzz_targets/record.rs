#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kolo_transport::fuzzing::record(bytes));
