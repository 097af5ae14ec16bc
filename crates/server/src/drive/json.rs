//! The JSON of programs that query a drive, value by value: one that is odd costs no other.

use serde_json::Value;

/// Parses a program's output. Returns `None` if it is no object. A drive's words may have any bytes.
pub(super) fn object(output: &[u8]) -> Option<Value> {
    let parsed = serde_json::from_str::<Value>(&String::from_utf8_lossy(output));
    parsed.ok().filter(Value::is_object)
}

/// Returns a whole number below 2^64. Some programs write it as text, because JSON readers lose the last
/// digits of large ones.
pub(super) fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.replace(',', "").trim().parse().ok(),
        _ => None,
    }
}
