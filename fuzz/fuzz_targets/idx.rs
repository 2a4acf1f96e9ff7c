#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kolo_data::fuzzing::decode_idx(bytes));
