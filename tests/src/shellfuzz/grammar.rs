//! Random command lines at the boundary between those that run directly and those that need a shell.

/// A generator of pseudo-random numbers: xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    /// In so many of a hundred cases.
    pub(crate) fn percent(&mut self, share: usize) -> bool {
        self.below(100) < share
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }
}

/// The first 12 are there and can be executed, from the directory itself at least.
const PROGRAMS: &[&str] = &[
    "p",
    "'p'",
    "\"p\"",
    "\\p",
    "p''",
    "exec p",
    "exec  'p'",
    "both",
    "shebang",
    "exec both",
    "./p2",
    "bin/p",
    "exec ./p2",
    "exec nosuch",
    "exec echo",
    "exec exec p",
    "nosuch",
    "./nosuch",
    "/p",
    "./noexec",
    "noexec",
    "./plain",
    "plain",
    "./shebang",
    "./badint",
    "badint",
    "./dir",
    "dir",
    "env",
    "cat",
    "ls",
    "./p2/",
    "''",
    "p=",
    "in",
    "if",
    "echo",
    "true",
    "test",
    "kill",
    "command p",
    "time p",
    "! p",
    "p%",
    "%1",
    "p!",
    "{",
    "p+=1",
    "a-b",
    "p.x",
    "sub/p",
    "proc/exe",
    "fds/7",
];

const WORDS: &[&str] = &[
    "a",
    "-l",
    "--x=y",
    "a=b",
    "/tmp",
    "x:y",
    "1",
    "22",
    "''",
    "\"\"",
    "'a b'",
    "\"a b\"",
    "a\\ b",
    "'a$b'",
    "\"a\\$b\"",
    "\"\\n\"",
    "'\\n'",
    "!",
    "^",
    "@",
    "%",
    "a#b",
    "#c",
    ",",
    "+",
    "]",
    "a]",
    "'é'",
    "\"é\"",
    "é",
    "'*'",
    "\\*",
    "\\?",
    "\"[a]\"",
    "\\~",
    "'~'",
    "a~",
    "\\\\",
    "\"\\\\\"",
    "\"a\\\"b\"",
    "'a'\\''b'",
    "\"a'b\"",
    "\"\\a\\\\a\\`\"",
    "'\n'",
    "\"a\nb\"",
    "\\#",
    "'#'",
    "a=#",
    "exit3",
    "exit0",
    "kill15",
    "kill9",
    "kill11",
    "kill6",
    "kill13",
    "kill2",
    "kill64",
    "kill10",
    "in",
    "in",
    "-",
    "--",
    "1a",
    "\\<",
    "'>'",
    "\\|",
    "'&'",
    "\";\"",
    "\\;",
    "\"(\"",
    "'\u{80}\u{81}\u{88}'",
    "\"\u{a0}\"",
    "\\a\\b",
    "if",
    "then",
    "done",
    "a\\\tb",
    "\"!\"",
    "'{a,b}'",
    "@a",
    "=",
    "=a",
    "a==b",
    "A=1",
    "\"$\"'\"'",
    "x\"y\"'z'",
    "'\t'",
];

/// Syntax for the shell.
const LIVE: &[&str] = &[
    "*", "?", "[a]", "i*", "{a,b}", "~", "~/x", "a=~", "$A", "\"$A\"", "$", "`p`", "$(p)", "$((1))", "${A}", "\"`p`\"",
    "; p", "&& p", "| p", "|| p", "&", "\n p", "\\\n", "(", ")", "{", "}", "'", "\"", "\\", "\r", "<<E\nE", "$'a'",
    "$\"a\"", "\u{1}", "\u{7f}",
];

/// The first 34 are harmless.
const REDIRECTIONS: &[&str] = &[
    ">f",
    "> f",
    ">g",
    ">>f",
    ">>in",
    ">> g",
    "<in",
    "< in",
    "2>f",
    "2>&1",
    "1>&2",
    ">&2",
    "2>/dev/null",
    ">/dev/null",
    "</dev/null",
    "2>>f",
    "3>f",
    "3<in",
    "0<in",
    "9>f",
    ">'f'",
    ">\"f g\"",
    ">f\\ g",
    "2> g",
    "<link/in",
    "1>f",
    "1>>f",
    "5>&1",
    "7>f",
    "4<&0",
    ">!",
    ">f#",
    "3>&1",
    "2>&1",
    "<nosuch",
    ">&3",
    "<&3",
    "2>&3",
    ">dir",
    ">dir/f",
    ">nosuch/f",
    "<dir",
    ">''",
    ">link",
    "1>&5",
    ">&7",
    "2>&7",
    ">/dev/full",
    ">socket",
    "10>f",
    ">&-",
    "<&-",
    "<>f",
    ">|f",
    ">&f",
    "&>f",
    "> >f",
    ">",
    "2 >f",
    "a2>f",
    "'2'>f",
    ">&'1'",
    "1>&1",
    ">*",
    ">$A",
    "<&0",
    "0<&0",
    ">#f",
    "<in<in",
    ">f>g",
    "2>&1>f",
    ">f2>&1",
    "1>&3",
    "3>&2",
    "2<in",
    "1<in",
    "2>>in",
    ">>dir/in",
    "2>in",
];

/// Into procfs, by its own names and by others. What is read there shows who has opened it.
const PROCFS: &[&str] = &[
    "in <proc/comm",
    "in <./proc/../self/comm",
    "in <fds/7",
    "in <fds/0",
    "0<../w/fds/7",
    ">fds/7",
    ">>fds/1",
    "2>fds/1",
    "</proc/self/comm",
    "</dev/fd/7",
    "</dev/stdin",
    ">/dev/stdout",
    "</proc/self/exe",
    "</proc/thread-self/comm",
    "</proc/1/comm",
    "</proc/self/fd/0",
    "</dev/fd/../null",
    "</dev/fd/./0",
    "<proc/../../../dev/null",
    "<link/../fds/0",
    "2>/dev/stderr",
    ">/proc/self/fd/1",
    ">>proc/fd/1",
    "<proc/self/comm",
    "<proc/root/dev/null",
    "<proc/cwd/in",
];

/// Devices, by their own names and by others.
const DEVICES: &[&str] = &[
    "</dev/zero",
    "</dev/urandom",
    "</dev/full",
    ">>/dev/null",
    "<>/dev/null",
    "</dev/../dev/null",
    "<//dev//null",
    "2>>/dev/full",
    ">/dev/tty",
    "</dev/tty",
    "</dev/ptmx",
    ">/dev/",
    "</dev",
    "</dev/nosuch",
    ">/dev/full 2>&1",
    "<link/../../../../dev/null",
];

const ASSIGNMENTS: &[&str] = &[
    "A=1",
    "B=2",
    "NEW=3",
    "A='x y'",
    "A=\"q\"",
    "A=",
    "a_1=x",
    "LC_ALL=C",
    "LANG=xx",
    "LD_X=1",
    "HOME=/",
    "A=a=b",
    "_A=1",
    "A=1 A=2",
    "PATH=/x",
    "IFS=x",
    "PWD=/",
    "OPTIND=2",
    "PS1=x",
    "A=$B",
    "A=*",
    "A=~",
    "1A=2",
    "A+=1",
    "'A'=1",
    "A-B=1",
    "A\\=1",
    "SHLVL=5",
    "_=x",
    "A=a:b",
    "A=-",
    "A=!",
    "ENV=x",
    "BASH_ENV=x",
    "FOO=x\\ y",
    "TERM=x",
    "TZ=UTC",
    "É=1",
    "A=#",
    "MAIL=x",
    "RANDOM=3",
    "PPID=1",
];

const BLANKS: &[&str] = &[" ", " ", " ", " ", "  ", "\t", " \t "];

/// Insertions of a mutation.
const BYTES: &[u8] = b" \t\n\\'\"$`*?[]{}()~#!&|;<>=%^@+-,./:_0123456789aAp\x01\x7f\x80\xff\r";

/// A line, as bytes.
pub(crate) fn line(random: &mut Random) -> Vec<u8> {
    let mut text = String::new();
    if random.percent(6) {
        text += random.pick(&["\n", " ", "\t", "# c\n", ";", "-", "+", "\n\n "]);
    }
    let mut parts = Vec::new();
    while random.percent(14) {
        parts.push(random.pick(ASSIGNMENTS));
    }
    if random.percent(8) {
        parts.push(random.pick(REDIRECTIONS));
    }
    parts.push(match random.below(100) {
        0..45 => "p",
        45..85 => random.pick(&PROGRAMS[..12]),
        _ => random.pick(PROGRAMS),
    });
    for _ in 0..random.below(6) {
        parts.push(match random.below(100) {
            0..55 => random.pick(WORDS),
            55..90 => {
                let known = if random.percent(75) { 34 } else { REDIRECTIONS.len() };
                random.pick(&REDIRECTIONS[..known])
            }
            90..92 => random.pick(PROCFS),
            92..93 => random.pick(DEVICES),
            93..96 => random.pick(ASSIGNMENTS),
            _ => random.pick(LIVE),
        });
    }
    for (n, part) in parts.iter().enumerate() {
        // Now and then two parts stand together.
        if n > 0 && !random.percent(3) {
            text += random.pick(BLANKS);
        }
        text += part;
    }
    if random.percent(10) {
        text +=
            random.pick(&["\n", " ", "\n\n", " # c", "#c", " #", ";", " &", " # 'c", "\n# c", "\t\n ", "\\", "\\\n"]);
    }
    let mut line = text.into_bytes();
    while random.percent(15) {
        mutate(random, &mut line);
    }
    line
}

fn mutate(random: &mut Random, line: &mut Vec<u8>) {
    let byte = BYTES[random.below(BYTES.len())];
    let at = random.below(line.len() + 1);
    match random.below(3) {
        0 => line.insert(at, byte),
        1 if at < line.len() => line[at] = byte,
        2 if at < line.len() => drop(line.remove(at)),
        _ => {}
    }
}

/// An environment: entries of any form, some of them twice.
pub(crate) fn environment(random: &mut Random, directory: &str) -> Vec<String> {
    const NAMES: &[&str] = &[
        "A",
        "B",
        "C",
        "AB",
        "a",
        "_",
        "HOME",
        "USER",
        "LANG",
        "TERM",
        "MAIL",
        "PS1",
        "PS2",
        "SHLVL",
        "EDITOR",
        "X1",
        "X2",
        "LOGNAME",
        "OLDPWD",
        "SHELL",
        "TZ",
        "A_B",
        "HISTFILE",
        "MAILPATH",
        "LC_CTYPE",
        "DISPLAY",
        "PS4",
        "BASHX",
        "XDG_RUNTIME_DIR",
        "_1",
        "é",
        "1A",
        "a-b",
        "A.B",
        "HOSTNAME",
        "HOSTTYPE",
        "MACHTYPE",
        "OSTYPE",
        "SSH_CLIENT",
        "HISTSIZE",
        "HISTCONTROL",
        "HISTFILESIZE",
        "HISTTIMEFORMAT",
        "HISTIGNORE",
        "TMOUT",
        "CDPATH",
        "MAILCHECK",
        "FCEDIT",
        "INPUTRC",
        "LC_MESSAGES",
        "LC_NUMERIC",
        "EXECIGNORE",
        "GLOBSORT",
        "CHILD_MAX",
        "OPTIND",
        "IFS",
        "PPID",
        "LINENO",
        "LC_ALL",
    ];
    const VALUES: &[&str] = &["", "1", "x y", "a=b", "/tmp", "C", "3", "é", "C.UTF-8"];
    let mut entries = Vec::new();
    for _ in 0..random.below(24) {
        // The last ones always need the shell.
        let known = if random.percent(10) { NAMES.len() } else { NAMES.len() - 5 };
        let value = random.pick(VALUES);
        entries.push(format!("{}={value}", random.pick(&NAMES[..known])));
    }
    if random.percent(5) {
        entries.push("without".to_owned());
    }
    match random.below(16) {
        0 => {}
        1 => entries.push("PWD=/nowhere".to_owned()),
        2 => entries.push(format!("PWD={directory}/../{}", directory.rsplit('/').next().unwrap_or(""))),
        3 => entries.push(format!("PWD={directory}/link/..")),
        _ => entries.push(format!("PWD={directory}")),
    }
    if random.percent(50) {
        entries.push(format!("SHLVL={}", 1 + random.below(3)));
    }
    let at = random.below(entries.len() + 1);
    entries.insert(at, format!("FUZZ_REPORT={directory}.report"));
    // Only what has been put there: a mutated name must not be a program of the system.
    let path = match random.below(40) {
        0 => format!("PATH={directory}/bin:"),
        1 => format!("PATH=:{directory}/bin:{directory}/sys"),
        2 => format!("PATH=/nosuch:{directory}/in:{directory}/bin/:{directory}/sys/"),
        3 => format!("PATH={directory}/bin2:{directory}/bin:{directory}/sys"),
        4 => "PATH=".to_owned(),
        5 => "PATH=bin".to_owned(),
        6 => return entries,
        _ => format!("PATH={directory}/bin:{directory}/sys"),
    };
    entries.insert(random.below(entries.len() + 1), path);
    entries
}
