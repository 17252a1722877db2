//! Formats numbers for people.

/// 1024 as "1 GiB", 100 as "100 MiB".
pub(crate) fn mebibytes(mib: u64) -> String {
    if mib >= 1024 && mib.is_multiple_of(1024) { format!("{} GiB", mib / 1024) } else { format!("{mib} MiB") }
}

/// 100 as "100 bytes", 1 << 20 as "1 MiB".
pub(crate) fn bytes(number: u64) -> String {
    match number {
        number if number >= 1 << 20 => mebibytes(number >> 20),
        number if number >= 1 << 10 && number.is_multiple_of(1 << 10) => format!("{} KiB", number >> 10),
        number => count(number, "byte", "bytes"),
    }
}

/// 15000 as "15,000".
pub(crate) fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// 1 as "1 thread", 4 as "4 threads".
pub(crate) fn count(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", thousands(value), if value == 1 { one } else { many })
}

/// Three or four significant digits: 82.4, 1,853.
pub(crate) fn figure(value: f64) -> String {
    if value < 99.95 { format!("{value:.1}") } else { thousands(value.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated_by_commas() {
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(999), "999");
    }

    #[test]
    fn one_of_something_is_singular() {
        assert_eq!(count(1, "thread", "threads"), "1 thread");
        assert_eq!(count(2_000, "thread", "threads"), "2,000 threads");
        assert_eq!((bytes(1), bytes(100)), ("1 byte".to_owned(), "100 bytes".to_owned()));
    }
}
