//! The engines embedded in this program: their sources, and how to build and run them.

use super::super::contestant::Contestant;

/// The engine of a method.
#[derive(Clone, Copy)]
pub(super) struct EngineSource {
    pub(super) contestant: Contestant,
    pub(super) file: &'static str,
    pub(super) text: &'static str,
    /// The command that builds it in the directory of the engines, if any.
    pub(super) build: Option<&'static [&'static str]>,
    /// The command that runs it; `@` stands for its directory.
    pub(super) run: &'static [&'static str],
    /// Its environment variables; `@` stands for its directory.
    pub(super) environment: &'static [(&'static str, &'static str)],
}

impl EngineSource {
    /// Whether the engine is this program under the preload library.
    pub(super) fn is_preloaded(&self) -> bool {
        self.environment.iter().any(|(name, _)| *name == "LD_PRELOAD")
    }
}

type Words = &'static [&'static str];

const fn engine(
    contestant: Contestant,
    file: &'static str,
    text: &'static str,
    build: Option<Words>,
    run: Words,
) -> EngineSource {
    EngineSource { contestant, file, text, build, run, environment: &[] }
}

/// The same engine for another method.
const fn like(first: EngineSource, contestant: Contestant, run: Words) -> EngineSource {
    EngineSource { contestant, run, ..first }
}

const CPYTHON: EngineSource = engine(
    Contestant::CPython,
    "engine.py",
    include_str!("../../engines/cpython/engine.py"),
    None,
    &["python3", "-I", "@/engine.py", "subprocess"],
);

const PERL: EngineSource = engine(
    Contestant::PerlSystem,
    "engine.pl",
    include_str!("../../engines/perl/engine.pl"),
    None,
    &["perl", "@/engine.pl", "system"],
);

const NODE: EngineSource = engine(
    Contestant::NodeSpawn,
    "engine.js",
    include_str!("../../engines/node/engine.js"),
    None,
    &["node", "@/engine.js", "spawn"],
);

/// The file name of the preload library, and the variable that loads it.
pub(super) const PRELOAD: &str = "libforkless_preload.so";
const LOADED: (&str, &str) = ("LD_PRELOAD", "@/libforkless_preload.so");

const PRELOADED: EngineSource = EngineSource {
    contestant: Contestant::ForklessPreloadPosixSpawn,
    file: "",
    text: "",
    build: None,
    run: &["/proc/self/exe", "--serve", "posix_spawn", "--"],
    environment: &[LOADED],
};

/// All engines, grouped by language.
pub(super) const SOURCES: [EngineSource; 25] = [
    engine(
        Contestant::Go,
        "engine.go",
        include_str!("../../engines/go/main.go"),
        Some(&["go", "build", "-o", "engine-go", "engine.go"]),
        &["@/engine-go"],
    ),
    CPYTHON,
    like(CPYTHON, Contestant::CPythonAsyncio, &["python3", "-I", "@/engine.py", "asyncio"]),
    PERL,
    like(PERL, Contestant::PerlBackticks, &["perl", "@/engine.pl", "backticks"]),
    like(PERL, Contestant::PerlFastSpawn, &["perl", "@/engine.pl", "fastspawn"]),
    like(PERL, Contestant::PerlIpcRun, &["perl", "@/engine.pl", "ipc-run"]),
    NODE,
    like(NODE, Contestant::NodeSpawnSync, &["node", "@/engine.js", "spawnSync"]),
    engine(
        Contestant::Java,
        "Engine.java",
        include_str!("../../engines/java/Engine.java"),
        Some(&["javac", "-d", ".", "Engine.java"]),
        // The requested memory is outside the heap.
        &["java", "-XX:MaxDirectMemorySize=1t", "-cp", "@", "Engine"],
    ),
    engine(
        Contestant::Glib,
        "glib.c",
        include_str!("../../engines/glib/engine.c"),
        Some(&["sh", "-c", "cc -O2 -pthread -o engine-glib glib.c $(pkg-config --cflags --libs glib-2.0)"]),
        &["@/engine-glib"],
    ),
    engine(
        Contestant::Libuv,
        "libuv.c",
        include_str!("../../engines/libuv/engine.c"),
        Some(&["cc", "-O2", "-o", "engine-libuv", "libuv.c", "-luv"]),
        &["@/engine-libuv"],
    ),
    like(PERL, Contestant::ForklessPerlSystem, &["perl", "@/engine.pl", "forkless-system"]),
    like(PERL, Contestant::ForklessPerlBackticks, &["perl", "@/engine.pl", "forkless-backticks"]),
    like(PERL, Contestant::ForklessPerlFastSpawn, &["perl", "@/engine.pl", "forkless-fastspawn"]),
    like(CPYTHON, Contestant::ForklessCPython, &["python3", "-I", "@/engine.py", "forkless"]),
    like(CPYTHON, Contestant::ForklessCPythonRun, &["python3", "-I", "@/engine.py", "forkless-run"]),
    like(CPYTHON, Contestant::ForklessCPythonAsyncio, &["python3", "-I", "@/engine.py", "forkless-asyncio"]),
    like(NODE, Contestant::ForklessNodeSpawn, &["node", "@/engine.js", "forkless-spawn"]),
    like(NODE, Contestant::ForklessNodeSpawnSync, &["node", "@/engine.js", "forkless-spawnSync"]),
    PRELOADED,
    like(
        PRELOADED,
        Contestant::ForklessPreloadClosefrom,
        &["/proc/self/exe", "--serve", "posix_spawn-closefrom", "--"],
    ),
    EngineSource {
        contestant: Contestant::ForklessPreloadStdio,
        environment: &[LOADED, ("FORKLESS_INHERIT", "stdio")],
        ..PRELOADED
    },
    like(PRELOADED, Contestant::ForklessPreloadSystem, &["/proc/self/exe", "--serve", "system", "--"]),
    like(PRELOADED, Contestant::ForklessPreloadPopen, &["/proc/self/exe", "--serve", "popen", "--"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_has_a_source() {
        for contestant in Contestant::ALL {
            let has_source = SOURCES.iter().any(|source| source.contestant == contestant);
            assert_eq!(contestant.is_engine(), has_source, "{}", contestant.name());
        }
    }
}
