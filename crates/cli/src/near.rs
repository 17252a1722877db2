//! The known name that is nearest to a mistyped one.

/// Suggests a name for the end of a message: `; did you mean "ptrace"?`, or nothing if none is near.
pub(crate) fn did_you_mean<S: AsRef<str> + std::fmt::Debug>(word: &str, names: impl IntoIterator<Item = S>) -> String {
    near(word, names).map_or_else(String::new, |name| format!("; did you mean {name:?}?"))
}

/// The nearest of `names`, if few enough letters differ, ignoring case. Of equally near ones, that with the same initial.
pub(crate) fn near<S: AsRef<str>>(word: &str, names: impl IntoIterator<Item = S>) -> Option<S> {
    let folded = word.to_ascii_lowercase();
    let measured = names.into_iter().filter_map(|name| {
        let far = distance(&folded, &name.as_ref().to_ascii_lowercase());
        // The first letter is seldom wrong.
        let begins_the_same = folded.chars().next() == name.as_ref().to_ascii_lowercase().chars().next();
        (name.as_ref() != word && far <= allowed(word, name.as_ref())).then_some(((far, !begins_the_same), name))
    });
    measured.min_by_key(|(far, _)| *far).map(|(_, name)| name)
}

/// How many letters may differ: one in short names, more in longer ones, and never most of them.
fn allowed(word: &str, name: &str) -> usize {
    match word.chars().count().min(name.chars().count()) {
        0 | 1 => 0,
        2..=4 => 1,
        5..=8 => 2,
        _ => 3,
    }
}

/// Letters to insert, delete, replace, or exchange with their neighbour, to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    // The last three rows of the table of distances between the beginnings of both words.
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let replaced = above[j] + usize::from(a != b);
            let mut least = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        (before, above) = (above, row);
    }
    above[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_each_kind_of_slip_once() {
        for (one, other, wanted) in [
            ("", "", 0),
            ("", "ab", 2),
            ("ptrce", "ptrace", 1),
            ("slep", "sleep", 1),
            ("sl", "ls", 1),
            ("abc", "xyz", 3),
        ] {
            assert_eq!((distance(one, other), distance(other, one)), (wanted, wanted), "{one} {other}");
        }
    }

    #[test]
    fn only_a_near_name_is_suggested() {
        let names = ["timeout", "kill-after", "uid", "bind"];
        assert_eq!(near("timout", names), Some("timeout"));
        assert_eq!(near("TIMEOUT", names), Some("timeout"));
        assert_eq!(near("kill_aftr", names), Some("kill-after"));
        assert_eq!(near("cid", names), Some("uid"));
        assert_eq!(near("fsh", ["zsh", "fish"]), Some("fish"));
        for word in ["", "x", "verbose", "cap-drop", "timeout"] {
            assert_eq!(near(word, names), None, "{word}");
        }
        assert_eq!(did_you_mean("ptrce", ["ptrace"]), "; did you mean \"ptrace\"?");
        assert_eq!(did_you_mean("xyzzy", ["ptrace"]), "");
    }
}
