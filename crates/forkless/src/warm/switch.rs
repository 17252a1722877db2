//! The administrator's switch: a file that forbids warm launches to all programs of the machine.

use std::sync::OnceLock;

/// The file. A word `off` at its start forbids, and so does a file that cannot be read. Those who may write to `/etc/forkless`
/// may write it.
const FILE: &str = "/etc/forkless/warm";

/// Whether warm launches are allowed. The file is read once, so a process sees a change after its next start.
pub(super) fn is_allowed() -> bool {
    static ALLOWS: OnceLock<bool> = OnceLock::new();
    *ALLOWS.get_or_init(|| match std::fs::read(FILE) {
        Ok(text) => !is_off(&text),
        Err(error) => matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory),
    })
}

fn is_off(text: &[u8]) -> bool {
    text.split(u8::is_ascii_whitespace).find(|word| !word.is_empty()) == Some(b"off")
}

#[cfg(test)]
mod tests {
    use super::is_off;

    #[test]
    fn the_first_word_decides() {
        assert!(is_off(b"off") && is_off(b"\n off\n") && is_off(b"off # since Monday"));
        assert!(!is_off(b"") && !is_off(b"on\noff\n") && !is_off(b"offline"));
    }
}
