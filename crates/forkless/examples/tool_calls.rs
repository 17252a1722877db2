//! Runs the tool calls of an agent beside a timer of 5 ms: `tool_calls MODE SLOTS CYCLES MEBIBYTES DESCRIPTORS DIRECTORY
//! TOOLS`. `forkless bench tools` measures it; `bench/METHODOLOGY.md` says what it prints.
//!
//! MODE is `stock` (`tokio::process`), `forkless` (`forkless::tokio`), or, with the feature `warm`, the path of
//! `libforkless_warm.so`: `forkless::tokio` with warm programs.

use nix::sys::resource::{Usage, UsageWho, getrusage};
use std::fs::{self, File};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(5);

/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A call as the user writes it, with a timeout. Both modules have the same names.
macro_rules! call {
    ($command:path, $null:expr, $words:expr, $directory:expr, $set:expr) => {{
        let mut command = <$command>::new(&$words[1]);
        command.args(&$words[2..]).current_dir($directory).stdin($null).kill_on_drop(true);
        $set(&mut command);
        tokio::time::timeout(LIMIT, command.output()).await??
    }};
}

/// The method of the calls.
enum Mode {
    Stock,
    Forkless,
    #[cfg(feature = "warm")]
    Warm(forkless::warm::Warm),
}

impl Mode {
    fn of(word: &str) -> io::Result<Self> {
        match word {
            "stock" => Ok(Self::Stock),
            "forkless" => Ok(Self::Forkless),
            #[cfg(feature = "warm")]
            path => Ok(Self::Warm(forkless::warm::Warm::new(path)?)),
            #[cfg(not(feature = "warm"))]
            other => Err(io::Error::other(format!("unknown mode {other}"))),
        }
    }

    /// A comparison of warm programs without a warm launch would show nothing.
    fn check(&self) -> io::Result<()> {
        match self {
            #[cfg(feature = "warm")]
            Self::Warm(warm) if warm.stats().warm == 0 => Err(io::Error::other(format!("no warm launch: {warm:?}"))),
            _ => Ok(()),
        }
    }
}

struct Work {
    mode: Mode,
    directory: String,
    /// Name, program and arguments of each tool.
    tools: Vec<Vec<String>>,
    calls: usize,
    next: AtomicUsize,
    bytes: AtomicU64,
}

/// Makes one call, and returns how long it took.
async fn call(work: &Work, tool: usize) -> io::Result<Duration> {
    let words = &work.tools[tool];
    let begun = Instant::now();
    let null = forkless::Stdio::null;
    let output = match &work.mode {
        Mode::Stock => {
            call!(tokio::process::Command, std::process::Stdio::null(), words, &work.directory, |_: &mut _| ())
        }
        Mode::Forkless => call!(forkless::tokio::Command, null(), words, &work.directory, |_: &mut _| ()),
        #[cfg(feature = "warm")]
        Mode::Warm(warm) => {
            let set = |command: &mut forkless::tokio::Command| _ = command.as_std_mut().warm(warm);
            call!(forkless::tokio::Command, null(), words, &work.directory, set)
        }
    };
    let took = begun.elapsed();
    if !output.status.success() {
        return Err(io::Error::other(format!("{words:?}: {output:?}")));
    }
    work.bytes.fetch_add(output.stdout.len() as u64, Ordering::Relaxed);
    Ok(took)
}

/// Makes calls until all have been made.
async fn slot(work: Arc<Work>) -> io::Result<Vec<(usize, Duration)>> {
    let mut times = Vec::new();
    loop {
        let number = work.next.fetch_add(1, Ordering::Relaxed);
        if number >= work.calls {
            return Ok(times);
        }
        let tool = number % work.tools.len();
        times.push((tool, call(&work, tool).await?));
    }
}

fn cpu(who: UsageWho) -> io::Result<i64> {
    let of = |usage: Usage| {
        [usage.user_time(), usage.system_time()].map(|time| time.tv_sec() * 1_000_000 + time.tv_usec()).iter().sum()
    };
    Ok(of(getrusage(who)?))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mode, slots, cycles, mebibytes, descriptors, directory, tools] = &words[..] else {
        return Err(io::Error::other("usage: tool_calls MODE SLOTS CYCLES MEBIBYTES DESCRIPTORS DIRECTORY TOOLS"));
    };
    let number = |word: &String| word.parse::<usize>().map_err(io::Error::other);
    // Every page is written to.
    let memory = vec![1_u8; number(mebibytes)? << 20];
    let files: Vec<File> = (0..number(descriptors)?).map(|_| File::open("/dev/null")).collect::<Result<_, _>>()?;
    let tools = fs::read_to_string(tools)?;
    let tools: Vec<Vec<String>> = tools.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect();
    let work = Arc::new(Work {
        mode: Mode::of(mode)?,
        directory: directory.clone(),
        calls: number(cycles)? * tools.len(),
        tools,
        next: AtomicUsize::new(0),
        bytes: AtomicU64::new(0),
    });
    for tool in 0..work.tools.len() {
        call(&work, tool).await?;
    }
    work.bytes.store(0, Ordering::Relaxed);
    let stop = Arc::new(AtomicU64::new(0));
    let longest = Arc::clone(&stop);
    let timer = tokio::spawn(async move {
        loop {
            let begun = Instant::now();
            tokio::time::sleep(TICK).await;
            longest.fetch_max(begun.elapsed().saturating_sub(TICK).as_nanos() as u64, Ordering::Relaxed);
        }
    });
    tokio::task::yield_now().await;
    let before = [cpu(UsageWho::RUSAGE_SELF)?, cpu(UsageWho::RUSAGE_CHILDREN)?];
    let running: Vec<_> = (0..number(slots)?).map(|_| tokio::spawn(slot(Arc::clone(&work)))).collect();
    for slot in running {
        for (tool, time) in slot.await.map_err(io::Error::other)?? {
            println!("{}\t{}", work.tools[tool][0], time.as_nanos());
        }
    }
    println!("own\t{}", cpu(UsageWho::RUSAGE_SELF)? - before[0]);
    println!("children\t{}", cpu(UsageWho::RUSAGE_CHILDREN)? - before[1]);
    timer.abort();
    work.mode.check()?;
    println!("stop\t{}", stop.load(Ordering::Relaxed));
    println!("bytes\t{}", work.bytes.load(Ordering::Relaxed));
    std::hint::black_box((memory, files));
    Ok(())
}
