//! Formats numbers for people.

/// 1024 as "1 GiB", 100 as "100 MiB".
pub(crate) fn mebibytes(mib: u64) -> String {
    if mib >= 1024 && mib.is_multiple_of(1024) { format!("{} GiB", mib / 1024) } else { format!("{mib} MiB") }
}

/// 100 as "100 bytes", 1 << 20 as "1 MiB".
pub(crate) fn bytes(count: u64) -> String {
    match count {
        count if count >= 1 << 20 => mebibytes(count >> 20),
        count if count >= 1 << 10 && count.is_multiple_of(1 << 10) => format!("{} KiB", count >> 10),
        count => format!("{} bytes", thousands(count)),
    }
}

/// 15000 as "15,000".
pub fn thousands(value: u64) -> String {
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

/// Three or four significant digits: 82.4, 1,853.
pub fn figure(value: f64) -> String {
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
}
