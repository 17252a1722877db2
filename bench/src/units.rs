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

/// Microseconds with a unit: 38.0 µs, 20.5 ms.
pub(crate) fn time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.1} s", us / 1e6),
        us if us >= 1e4 => format!("{:.1} ms", us / 1e3),
        us => format!("{} µs", figure(us)),
    }
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

    #[test]
    fn figures_have_three_significant_digits_and_times_a_unit() {
        assert_eq!([82.44, 99.97, 104_123.4].map(figure), ["82.4", "100", "104,123"]);
        assert_eq!([38.04, 20_498.3, 1_500_000.0].map(time), ["38.0 µs", "20.5 ms", "1.5 s"]);
    }
}
