//! Messages on standard error, as all subcommands print them.

use std::{
    fmt,
    io::{self, Write},
};

/// Prints a message to standard error. Errors are ignored: there is nowhere to report that standard error is closed.
pub fn say(words: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "forkless: {}", clean(&words.to_string()));
}

/// A message as a terminal may show it: control characters of names are escaped, and the numbers that the standard library
/// adds to the texts of errors are left out.
pub fn clean(words: &str) -> String {
    let mut parts = words.split(" (os error ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += part.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_start_matches(')');
    }
    let is_shown = |letter: char| !letter.is_control() || letter == '\n';
    match text.chars().all(is_shown) {
        true => text,
        false => {
            text.chars().map(|c| if is_shown(c) { c.to_string() } else { c.escape_default().to_string() }).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn messages_have_no_numbers_and_no_control_characters() {
        let text = "cannot open \"x\": No such file or directory (os error 2); create it\nor not (os error 13)";
        assert_eq!(clean(text), "cannot open \"x\": No such file or directory; create it\nor not");
        assert_eq!(clean("a\x1b[31m\tb\r\u{9b}"), "a\\u{1b}[31m\\tb\\r\\u{9b}");
        assert_eq!(clean("ä – ok"), "ä – ok");
    }
}
