//! The engines embedded in this program: their sources, and how to build and run them.

use super::super::contestant::Contestant;

/// The engine of a method.
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
    /// Is it this program under the preload library?
    pub(super) fn is_preloaded(&self) -> bool {
        self.environment.iter().any(|(name, _)| *name == "LD_PRELOAD")
    }
}

const CPYTHON: EngineSource = EngineSource {
    contestant: Contestant::CPython,
    file: "engine.py",
    text: include_str!("../../engines/cpython/engine.py"),
    build: None,
    run: &["python3", "-I", "@/engine.py", "subprocess"],
    environment: &[],
};

const PERL: EngineSource = EngineSource {
    contestant: Contestant::PerlSystem,
    file: "engine.pl",
    text: include_str!("../../engines/perl/engine.pl"),
    build: None,
    run: &["perl", "@/engine.pl", "system"],
    environment: &[],
};

const NODE: EngineSource = EngineSource {
    contestant: Contestant::NodeSpawn,
    file: "engine.js",
    text: include_str!("../../engines/node/engine.js"),
    build: None,
    run: &["node", "@/engine.js", "spawn"],
    environment: &[],
};

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
    EngineSource {
        contestant: Contestant::Go,
        file: "engine.go",
        text: include_str!("../../engines/go/main.go"),
        build: Some(&["go", "build", "-o", "engine-go", "engine.go"]),
        run: &["@/engine-go"],
        environment: &[],
    },
    CPYTHON,
    EngineSource {
        contestant: Contestant::CPythonAsyncio,
        run: &["python3", "-I", "@/engine.py", "asyncio"],
        ..CPYTHON
    },
    PERL,
    EngineSource { contestant: Contestant::PerlBackticks, run: &["perl", "@/engine.pl", "backticks"], ..PERL },
    EngineSource { contestant: Contestant::PerlFastSpawn, run: &["perl", "@/engine.pl", "fastspawn"], ..PERL },
    EngineSource { contestant: Contestant::PerlIpcRun, run: &["perl", "@/engine.pl", "ipc-run"], ..PERL },
    NODE,
    EngineSource { contestant: Contestant::NodeSpawnSync, run: &["node", "@/engine.js", "spawnSync"], ..NODE },
    EngineSource {
        contestant: Contestant::Java,
        file: "Engine.java",
        text: include_str!("../../engines/java/Engine.java"),
        build: Some(&["javac", "-d", ".", "Engine.java"]),
        // The requested memory is outside the heap.
        run: &["java", "-XX:MaxDirectMemorySize=1t", "-cp", "@", "Engine"],
        environment: &[],
    },
    EngineSource {
        contestant: Contestant::Glib,
        file: "glib.c",
        text: include_str!("../../engines/glib/engine.c"),
        build: Some(&["sh", "-c", "cc -O2 -pthread -o engine-glib glib.c $(pkg-config --cflags --libs glib-2.0)"]),
        run: &["@/engine-glib"],
        environment: &[],
    },
    EngineSource {
        contestant: Contestant::Libuv,
        file: "libuv.c",
        text: include_str!("../../engines/libuv/engine.c"),
        build: Some(&["cc", "-O2", "-o", "engine-libuv", "libuv.c", "-luv"]),
        run: &["@/engine-libuv"],
        environment: &[],
    },
    EngineSource {
        contestant: Contestant::ForklessPerlSystem,
        run: &["perl", "@/engine.pl", "forkless-system"],
        ..PERL
    },
    EngineSource {
        contestant: Contestant::ForklessPerlBackticks,
        run: &["perl", "@/engine.pl", "forkless-backticks"],
        ..PERL
    },
    EngineSource {
        contestant: Contestant::ForklessPerlFastSpawn,
        run: &["perl", "@/engine.pl", "forkless-fastspawn"],
        ..PERL
    },
    EngineSource {
        contestant: Contestant::ForklessCPython,
        run: &["python3", "-I", "@/engine.py", "forkless"],
        ..CPYTHON
    },
    EngineSource {
        contestant: Contestant::ForklessCPythonRun,
        run: &["python3", "-I", "@/engine.py", "forkless-run"],
        ..CPYTHON
    },
    EngineSource {
        contestant: Contestant::ForklessCPythonAsyncio,
        run: &["python3", "-I", "@/engine.py", "forkless-asyncio"],
        ..CPYTHON
    },
    EngineSource { contestant: Contestant::ForklessNodeSpawn, run: &["node", "@/engine.js", "forkless-spawn"], ..NODE },
    EngineSource {
        contestant: Contestant::ForklessNodeSpawnSync,
        run: &["node", "@/engine.js", "forkless-spawnSync"],
        ..NODE
    },
    PRELOADED,
    EngineSource {
        contestant: Contestant::ForklessPreloadClosefrom,
        run: &["/proc/self/exe", "--serve", "posix_spawn-closefrom", "--"],
        ..PRELOADED
    },
    EngineSource {
        contestant: Contestant::ForklessPreloadStdio,
        environment: &[LOADED, ("FORKLESS_INHERIT", "stdio")],
        ..PRELOADED
    },
    EngineSource {
        contestant: Contestant::ForklessPreloadSystem,
        run: &["/proc/self/exe", "--serve", "system", "--"],
        ..PRELOADED
    },
    EngineSource {
        contestant: Contestant::ForklessPreloadPopen,
        run: &["/proc/self/exe", "--serve", "popen", "--"],
        ..PRELOADED
    },
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
