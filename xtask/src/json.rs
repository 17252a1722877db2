//! How records are written: compact, but with each entry of a list on its own line, so that git shows what has changed.

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

/// # Errors
/// If the value has no form in JSON.
pub fn lines(value: &impl Serialize) -> Result<String> {
    let list = |entries: &[Value]| {
        let entries: Vec<String> = entries.iter().map(Value::to_string).collect();
        format!("[\n{}\n]", entries.join(",\n"))
    };
    Ok(match serde_json::to_value(value)? {
        Value::Array(entries) => list(&entries),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| match value {
                Value::Array(entries) if entries.iter().any(|entry| entry.is_object() || entry.is_array()) => {
                    format!("{}:{}", Value::from(name.as_str()), list(entries))
                }
                _ => format!("{}:{value}", Value::from(name.as_str())),
            };
            format!("{{\n{}\n}}", fields.iter().map(field).collect::<Vec<_>>().join(",\n"))
        }
        other => other.to_string(),
    } + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_has_a_line() {
        let value = serde_json::json!({"a": 1, "b": [{"c": [2, 3]}, {"c": null}], "d": [4, 5]});
        assert_eq!(
            lines(&value).expect("JSON"),
            "{\n\"a\":1,\n\"b\":[\n{\"c\":[2,3]},\n{\"c\":null}\n],\n\"d\":[4,5]\n}\n"
        );
        assert_eq!(lines(&[1, 2]).expect("JSON"), "[\n1,\n2\n]\n");
    }
}
