#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kolo_transport::fuzzing::tcp_header(bytes));
