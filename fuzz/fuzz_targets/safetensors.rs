#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kolo_checkpoint::fuzzing::safetensors(bytes));
