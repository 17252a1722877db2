//! The rows of a record.

use serde_json::Value;

/// The rows of a record as objects.
#[allow(dead_code, reason = "not every test program uses it")]
pub(crate) fn rows(report: &Value) -> Vec<Value> {
    let columns =
        report["columns"].as_array().expect("columns").iter().map(|name| name.as_str().expect("a name").into());
    let columns: Vec<String> = columns.collect();
    let row = |condition: &Value, values: &Value| -> Value {
        let figures = columns.iter().cloned().zip(values.as_array().expect("values").iter().cloned());
        condition.as_object().expect("an object").clone().into_iter().chain(figures).collect()
    };
    let of = |group: &Value| {
        let methods = group["methods"].as_array().expect("methods").iter();
        methods.map(|values| row(&group["condition"], values)).collect::<Vec<_>>()
    };
    report["rows"].as_array().expect("rows").iter().flat_map(of).collect()
}

/// Multiplies numbers of the rows by what `factor` gives for the launcher, the number of the row, and the column.
#[allow(dead_code, reason = "not every test program uses it")]
pub(crate) fn multiply(record: &mut Value, factor: impl Fn(&str, usize, &str) -> Option<f64>) {
    let columns = record["columns"].as_array().expect("columns").clone();
    let launcher = columns.iter().position(|name| name == "launcher").expect("a column");
    let groups = record["rows"].as_array_mut().expect("rows").iter_mut();
    for (index, row) in groups.flat_map(|group| group["methods"].as_array_mut().expect("methods")).enumerate() {
        let name = row[launcher].as_str().expect("a name").to_owned();
        for (column, value) in columns.iter().zip(row.as_array_mut().expect("values")) {
            if let Some(by) = factor(&name, index, column.as_str().expect("a name")) {
                *value = (value.as_f64().expect("a number") * by).into();
            }
        }
    }
}
