//! Canonical form of a `tokenizer.json`: spaces, line ends and the order of keys do not change it.

use std::collections::BTreeMap;

use serde_json::Value;

/// Returns the canonical form of JSON; other bytes are their own.
pub(super) fn canonical(json: &[u8]) -> Vec<u8> {
    let value = serde_json::from_slice(json).map(sorted);
    value.and_then(|value| serde_json::to_vec(&value)).unwrap_or_else(|_| json.to_vec())
}

/// Returns a value whose keys are in ascending order, whatever order the JSON library keeps.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(entries) => {
            let entries: BTreeMap<String, Value> =
                entries.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(sorted).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn the_same_content_has_one_form() {
        let of = |json: &str| canonical(json.as_bytes());
        let one = of(r#"{"b": [1, {"d": "\u00e9", "c": null}], "a": 2}"#);
        assert_eq!(one, of("{\"a\":2,\r\n\t\"b\":[1,{\"c\":null,\"d\":\"é\"}]}\n"));
        // The order of a list is content: merges have ranks.
        for other in [r#"{"a":2,"b":[{"c":null,"d":"é"},1]}"#, r#"{"a":3,"b":[1,{"c":null,"d":"é"}]}"#] {
            assert_ne!(one, of(other));
        }
        assert_eq!(of("no JSON"), b"no JSON");
    }
}
