//! `--csv`: comma-separated values, as RFC 4180 describes them.

use std::io;

use super::sources::Row;

/// The places of the newlines that end a record: those outside of quotes. The text may begin within quotes.
pub(super) fn record_ends(text: &[u8], mut is_quoted: bool) -> impl Iterator<Item = usize> + '_ {
    memchr::memchr2_iter(b'"', b'\n', text).filter(move |place| {
        is_quoted ^= text[*place] == b'"';
        text[*place] == b'\n' && !is_quoted
    })
}

/// Whether the number of quotes in a text is odd.
pub(super) fn has_odd_quotes(text: &[u8]) -> bool {
    memchr::memchr_iter(b'"', text).count() % 2 == 1
}

/// The fields of a record.
///
/// # Errors
/// A quote is not closed.
pub(super) fn fields(record: &[u8], separator: u8) -> io::Result<Row> {
    if has_odd_quotes(record) {
        let text = String::from_utf8_lossy(record).into_owned();
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("--csv: a quote is not closed: {text}")));
    }
    let mut reader = csv::ReaderBuilder::new();
    let mut reader = reader.has_headers(false).flexible(true).delimiter(separator).from_reader(record);
    let mut row = csv::ByteRecord::new();
    match reader.read_byte_record(&mut row)? {
        true => Ok(row.iter().map(<[u8]>::to_vec).collect()),
        // An empty line has one value.
        false => Ok(vec![Vec::new()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(record: &str) -> Vec<String> {
        let row = fields(record.as_bytes(), b',').expect("fields");
        row.into_iter().map(|field| String::from_utf8(field).expect("UTF-8")).collect()
    }

    #[test]
    fn quotes_protect_separators_quotes_and_newlines() {
        assert_eq!(split(r#""1 big, 2 small","2""x4"" plank",12.34"#), ["1 big, 2 small", "2\"x4\" plank", "12.34"]);
        assert_eq!(split("a,\"b\nc\""), ["a", "b\nc"]);
        assert_eq!(split("a,b\r"), ["a", "b"]);
        assert_eq!(split(""), [""]);
        assert_eq!(split("\"\","), ["", ""]);
        assert!(fields(b"a,\"b", b',').is_err());
    }

    #[test]
    fn a_newline_in_quotes_ends_no_record() {
        assert_eq!(record_ends(b"a\n\"b\n\"\"\n\"c\nd", false).collect::<Vec<_>>(), [1, 10]);
        assert_eq!(record_ends(b"b\n\"c\nd", true).collect::<Vec<_>>(), [4]);
    }
}
