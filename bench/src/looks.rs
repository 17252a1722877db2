//! The appearance of the methods in the charts: colours and marks.

use std::fmt::Write;

use super::name::Name;

/// The appearance of a method in all charts.
pub(crate) struct Appearance {
    pub(crate) launcher: Name,
    /// The class of its colour, of [`COLOURS`].
    pub(crate) class: &'static str,
    /// The mark of its values, as a path.
    pub(crate) mark: &'static str,
}

/// The marks, as paths of about nine units around the origin.
const CIRCLE: &str = "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0";
const SQUARE: &str = "M-3.5-3.5h7v7h-7z";
const DIAMOND: &str = "M-4.8 0L0-4.8L4.8 0L0 4.8z";
const TRIANGLE: &str = "M0-4.5L4.3 3.2h-8.6z";
const CROSS: &str = "M-3.2-3.2L3.2 3.2M-3.2 3.2L3.2-3.2";

const fn appearance(launcher: Name, class: &'static str, mark: &'static str) -> Appearance {
    Appearance { launcher, class, mark }
}

/// The methods that are drawn, in this order: the context first, the baseline on top. The prepared forms of forkless are only in
/// the tables: their lines would cover the others.
pub(crate) const APPEARANCES: [Appearance; 24] = [
    appearance("system", "other", CROSS),
    appearance("std", "other", SQUARE),
    appearance("go", "other", TRIANGLE),
    appearance("cpython", "other", CIRCLE),
    appearance("java", "other", CROSS),
    appearance("node-spawn", "other", DIAMOND),
    appearance("glib", "other", TRIANGLE),
    appearance("perl-system", "other", SQUARE),
    appearance("libuv", "other", DIAMOND),
    appearance("tokio", "other", SQUARE),
    appearance("wait-any", "fork", SQUARE),
    appearance("fork", "fork", SQUARE),
    appearance("posix_spawn", "spawn", DIAMOND),
    appearance("forkless-output", "ours", CIRCLE),
    appearance("forkless-memory-file", "ours", TRIANGLE),
    appearance("forkless-tokio", "ours", DIAMOND),
    appearance("forkless-tokio-status", "ours", CIRCLE),
    appearance("forkless-wait-set", "ours", CIRCLE),
    appearance("forkless-inherit", "ours", SQUARE),
    appearance("forkless-spawn", "ours", TRIANGLE),
    appearance("forkless-launch", "ours", DIAMOND),
    appearance("forkless-status", "ours", CIRCLE),
    appearance("floor", "floor", CIRCLE),
    appearance("epoll", "floor", CIRCLE),
];

/// The colours of a class on a light and on a dark page: of forkless, of the two stock methods of libc, of the baseline, and of the
/// context. The first four are of the palette of Okabe and Ito (2008, "Color Universal Design"), which people with colour vision
/// deficiency can distinguish.
const COLOURS: [(&str, &str, &str); 5] = [
    ("ours", "#0072B2", "#56B4E9"),
    ("fork", "#D55E00", "#D55E00"),
    ("spawn", "#E69F00", "#E69F00"),
    ("floor", "#000000", "#F2F2F2"),
    ("other", "#A4A4A2", "#6A6F76"),
];

/// The rules of a drawing for a light or a dark page.
pub(crate) fn style(dark: bool) -> String {
    let mut style = String::new();
    for (class, light_colour, dark_colour) in COLOURS {
        let colour = if dark { dark_colour } else { light_colour };
        let _ = write!(style, "svg .{class}{{fill:{colour};stroke:{colour}}}");
    }
    let (ink, soft, grid) = if dark { ("#F2F2F2", "#A9ADB3", "#3A3D42") } else { ("#1E1E1E", "#5C5C5A", "#DDDDDB") };
    let _ = write!(style, "svg text{{fill:{ink}}}svg .faint{{fill:{soft}}}svg .grid{{stroke:{grid}}}");
    style + "svg polyline{fill:none!important}svg .lead{stroke-width:1;opacity:.6}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_a_colour_on_both_pages_and_methods_of_forkless_have_one() {
        for look in &APPEARANCES {
            let rule = format!("svg .{}{{fill:#", look.class);
            assert!(style(false).contains(&rule) && style(true).contains(&rule), "{}", look.launcher);
            assert_eq!(look.launcher.starts_with("forkless"), look.class == "ours", "{}", look.launcher);
        }
    }
}
