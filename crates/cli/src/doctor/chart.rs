//! The questions of the advice as a flow chart: the positions of all boxes, and the path taken. Both the text and the SVG are
//! drawn from these positions, which are columns and rows of characters.

use super::advice::{Advice, AdvisedMethod, Next, Question};

/// Width in characters.
pub(crate) const WIDTH: usize = 80;

/// Columns: questions reached from above, follow-up questions, and results.
const LEFT: Column = Column { x: 0, width: 28 };
const MIDDLE: Column = Column { x: 36, width: 24 };
const RIGHT: Column = Column { x: 66, width: 14 };

/// Height of a question and of a result, in rows.
const ASKED: usize = 4;
const TAKEN: usize = 3;
/// Rows between boxes in the left column, for the arrow and its label.
const BETWEEN: usize = 2;

#[derive(Clone, Copy)]
struct Column {
    x: usize,
    width: usize,
}

/// A box with text.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) lines: Vec<String>,
    /// A result, not a question.
    pub(crate) is_end: bool,
    pub(crate) taken: bool,
}

/// An answer: an arrow from one box to another.
#[derive(Debug)]
pub(crate) struct Arrow {
    pub(crate) way: Line,
    pub(crate) answer: &'static str,
    pub(crate) taken: bool,
}

/// The path of an arrow, in characters, including both ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Line {
    /// To the right in row `y`.
    Right { y: usize, from: usize, to: usize },
    /// Down in column `x`.
    Down { x: usize, from: usize, to: usize },
    /// Down in column `x`, then to the right in row `y`.
    Corner { x: usize, from: usize, y: usize, to: usize },
}

/// The whole chart.
#[derive(Debug, Default)]
pub(crate) struct Chart {
    pub(crate) nodes: Vec<Node>,
    pub(crate) arrows: Vec<Arrow>,
    pub(crate) height: usize,
}

impl Chart {
    /// The questions and, with `advice`, the path taken.
    pub(crate) fn of(advice: Option<&Advice>) -> Self {
        let mut chart = Self::default();
        let mut question = Question::FIRST;
        let mut y = 0;
        loop {
            let asked = answered(advice, question);
            chart.ask(question, LEFT, y, asked.is_some());
            let (aside, down) = directions(question);
            let height = chart.aside(question, aside, y, advice);
            let next = y + height.max(ASKED) + BETWEEN;
            let x = LEFT.x + LEFT.width / 2;
            let way = Line::Down { x, from: y + ASKED, to: next - 1 };
            chart.arrows.push(Arrow { way, answer: word(down), taken: asked == Some(down) });
            y = next;
            match question.then(down) {
                Next::Ask(below) => question = below,
                Next::Take(way) => {
                    chart.end(way, LEFT, y, asked == Some(down));
                    chart.height = y + TAKEN;
                    return chart;
                }
            }
        }
    }

    /// Draws the boxes to the right of a question; returns their height in rows.
    fn aside(&mut self, question: Question, answer: bool, y: usize, advice: Option<&Advice>) -> usize {
        let taken = answered(advice, question) == Some(answer);
        let arrow = |to: Column| Line::Right { y: y + 1, from: LEFT.x + LEFT.width, to: to.x - 1 };
        let beside = match question.then(answer) {
            Next::Ask(beside) => beside,
            Next::Take(way) => {
                self.arrows.push(Arrow { way: arrow(RIGHT), answer: word(answer), taken });
                self.end(way, RIGHT, y, taken);
                return TAKEN;
            }
        };
        self.arrows.push(Arrow { way: arrow(MIDDLE), answer: word(answer), taken });
        self.ask(beside, MIDDLE, y, taken);
        let (x, after) = (MIDDLE.x + MIDDLE.width / 2, MIDDLE.x + MIDDLE.width);
        let below = y + ASKED;
        for (yes, top, way) in [
            (true, y, Line::Right { y: y + 1, from: after, to: RIGHT.x - 1 }),
            (false, below, Line::Corner { x, from: below, y: below + 1, to: RIGHT.x - 1 }),
        ] {
            let taken = taken && answered(advice, beside) == Some(yes);
            self.arrows.push(Arrow { way, answer: word(yes), taken });
            if let Next::Take(way) = beside.then(yes) {
                self.end(way, RIGHT, top, taken);
            }
        }
        ASKED + TAKEN
    }

    fn ask(&mut self, question: Question, column: Column, y: usize, taken: bool) {
        let lines = wrap(question.describe(), column.width - 4);
        self.nodes.push(Node { x: column.x, y, width: column.width, height: ASKED, lines, is_end: false, taken });
    }

    fn end(&mut self, way: AdvisedMethod, column: Column, y: usize, taken: bool) {
        let lines = vec![way.name().to_owned()];
        self.nodes.push(Node { x: column.x, y, width: column.width, height: TAKEN, lines, is_end: true, taken });
    }
}

/// The answer to the question, if the advice reached it.
fn answered(advice: Option<&Advice>, question: Question) -> Option<bool> {
    advice?.path.iter().find(|answer| answer.question == question).map(|answer| answer.yes)
}

/// Which answer leads to the right, and which down. Down leads towards the preferred launcher.
fn directions(question: Question) -> (bool, bool) {
    let right = question == Question::Code;
    (right, !right)
}

fn word(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// Wraps text at `width` characters.
pub(crate) fn wrap(words: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A text description of the chart for screen readers.
pub(crate) fn description() -> String {
    let end = |question: Question, yes| match question.then(yes) {
        Next::Ask(next) => format!("ask: {}", next.describe()),
        Next::Take(way) => way.name().to_owned(),
    };
    let line = |question: Question| {
        format!("{} If yes, {}. If no, {}.", question.describe(), end(question, true), end(question, false))
    };
    Question::ALL.map(line).join(" ").replace("?.", "?")
}

/// The chart as text, with heavy lines for the path taken.
pub(crate) fn text(chart: &Chart) -> String {
    let mut canvas = Canvas { rows: vec![vec![' '; WIDTH]; chart.height] };
    for node in &chart.nodes {
        canvas.node(node);
    }
    for arrow in &chart.arrows {
        canvas.arrow(arrow);
    }
    let line = |row: &Vec<char>| row.iter().collect::<String>().trim_end().to_owned() + "\n";
    canvas.rows.iter().map(line).collect()
}

struct Canvas {
    rows: Vec<Vec<char>>,
}

impl Canvas {
    fn put(&mut self, x: usize, y: usize, text: &str) {
        for (offset, letter) in text.chars().enumerate() {
            if let Some(cell) = self.rows.get_mut(y).and_then(|row| row.get_mut(x + offset)) {
                *cell = letter;
            }
        }
    }

    fn node(&mut self, node: &Node) {
        let Node { x, y, width, height, .. } = *node;
        let [across, down, corners @ ..] = match (node.taken, node.is_end) {
            (true, _) => ['━', '┃', '┏', '┓', '┗', '┛'],
            (false, true) => ['─', '│', '╭', '╮', '╰', '╯'],
            (false, false) => ['─', '│', '┌', '┐', '└', '┘'],
        };
        let edge = across.to_string().repeat(width - 2);
        self.put(x, y, &format!("{}{edge}{}", corners[0], corners[1]));
        self.put(x, y + height - 1, &format!("{}{edge}{}", corners[2], corners[3]));
        for row in 1..height - 1 {
            let words = node.lines.get(row - 1).map_or("", String::as_str);
            let inner = width - 4;
            let words = if node.is_end { format!("{words:^inner$}") } else { format!("{words:<inner$}") };
            self.put(x, y + row, &format!("{down} {words} {down}"));
        }
    }

    fn arrow(&mut self, arrow: &Arrow) {
        let [across, down, corner] = if arrow.taken { ['━', '┃', '┗'] } else { ['─', '│', '└'] };
        let across = |from: usize, to: usize| across.to_string().repeat(to - from) + "▶";
        match arrow.way {
            Line::Right { y, from, to } => {
                self.put(from, y, &across(from, to));
                self.put(from + 1, y, arrow.answer);
            }
            Line::Down { x, from, to } => {
                (from..to).for_each(|y| self.put(x, y, &down.to_string()));
                self.put(x, to, "▼");
                self.put(x + 2, from, arrow.answer);
            }
            Line::Corner { x, from, y, to } => {
                (from..y).for_each(|y| self.put(x, y, &down.to_string()));
                self.put(x, y, &format!("{corner}{}", across(x + 1, to)));
                self.put(x + 2, from, arrow.answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::advice::Situation;
    use forkless::Support;

    use super::*;

    #[test]
    fn chart_fits_80_columns_without_overlaps() {
        let chart = Chart::of(None);
        let drawn = text(&chart);
        assert!(drawn.lines().all(|line| line.chars().count() <= WIDTH), "\n{drawn}");
        for (index, node) in chart.nodes.iter().enumerate() {
            assert!(node.lines.len() <= node.height - 2, "{node:?}");
            assert!(node.lines.iter().all(|line| line.chars().count() <= node.width - 4), "{node:?}");
            let apart = |other: &Node| {
                node.x + node.width <= other.x
                    || other.x + other.width <= node.x
                    || node.y + node.height <= other.y
                    || other.y + other.height <= node.y
            };
            assert!(chart.nodes.iter().skip(index + 1).all(apart), "{node:?}\n{drawn}");
        }
        assert!(!drawn.contains(['━', '┃']), "no path was taken\n{drawn}");
    }

    #[test]
    fn chart_has_all_questions_answers_and_launchers() {
        let chart = Chart::of(None);
        let asked = chart.nodes.iter().filter(|node| !node.is_end).count();
        assert_eq!(asked, Question::ALL.len());
        assert_eq!(chart.arrows.len(), 2 * asked);
        for way in [AdvisedMethod::Clone, AdvisedMethod::Zygote, AdvisedMethod::PosixSpawn, AdvisedMethod::Fork] {
            assert!(chart.nodes.iter().any(|node| node.is_end && node.lines == [way.name()]), "{way:?}");
        }
        assert!(description().contains(Question::Allowed.describe()));
    }

    #[test]
    fn chart_marks_exactly_the_path_taken() {
        for (support, code, threads, may_share) in [
            (Support::ALL, false, 1, true),
            (Support::ALL, false, 1, false),
            (Support::ALL, true, 1, true),
            (Support::ALL, true, 9, true),
            (Support::NONE, false, 1, true),
        ] {
            let mut situation = Situation::small(support);
            (situation.code, situation.threads) = (code, threads);
            situation.may_share = may_share;
            let advice = situation.advise(None);
            let chart = Chart::of(Some(&advice));
            let drawn = text(&chart);
            let ends: Vec<_> = chart.nodes.iter().filter(|node| node.taken && node.is_end).collect();
            assert_eq!(ends.len(), 1, "\n{drawn}");
            assert_eq!(ends[0].lines, [advice.way.name()], "\n{drawn}");
            assert_eq!(chart.arrows.iter().filter(|arrow| arrow.taken).count(), advice.path.len(), "\n{drawn}");
            assert!(drawn.contains('┃'));
        }
    }
}
