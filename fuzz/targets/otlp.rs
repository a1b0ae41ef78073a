//! The receiver's decoder over arbitrary bytes: what it takes survives a round trip.

#![no_main]

use kvprov_model::observation::otlp;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(decoded) = otlp::decode(data) {
        let again = otlp::decode(&otlp::encode(&decoded.observations));
        assert!(again.is_ok_and(|again| again.observations.len() == decoded.observations.len()));
    }
});
