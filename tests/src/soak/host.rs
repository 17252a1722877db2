//! The host: rounds of launches from many threads with different disturbances, and its resources afterwards.

use crate::disturb::{self, Page};
use crate::forms::{Around, FORMS, Fixtures, Tally, Worker};
use crate::observe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// The parameters.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) launches: u64,
    pub(crate) threads: u64,
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    /// A fault that must be found.
    pub(crate) control: Option<String>,
    pub(crate) json: Option<std::path::PathBuf>,
}

/// After so many launches everything that is kept for later launches is there.
const SETTLED: u64 = 10_000;

/// The disturbances of a round.
#[derive(Debug, Clone, Copy, Default)]
struct Weather {
    signals: bool,
    reapers: bool,
    forks: bool,
    filters: bool,
}

const WEATHERS: [Weather; 6] = {
    let calm = Weather { signals: false, reapers: false, forks: false, filters: false };
    [
        calm,
        Weather { signals: true, ..calm },
        Weather { reapers: true, ..calm },
        Weather { forks: true, ..calm },
        Weather { filters: true, ..calm },
        Weather { signals: true, forks: true, filters: true, ..calm },
    ]
};

/// The resources of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holdings {
    descriptors: Vec<i32>,
    mappings: usize,
    stacks: usize,
    threads: usize,
    resident_kib: u64,
    childless: bool,
}

impl Holdings {
    fn now() -> Self {
        let deadline = Instant::now() + Duration::from_secs(10);
        // Dropped children may still run, and threads that have been joined may still be on their way out.
        let (mut childless, mut threads);
        loop {
            forkless::reap_orphans();
            childless = observe::is_childless();
            threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
            if childless && threads == 1 || Instant::now() > deadline {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        Self {
            descriptors: observe::open_fds(),
            mappings: observe::mappings(),
            stacks: forkless::mapped_stacks(),
            threads,
            resident_kib: observe::resident_kib(),
            childless,
        }
    }

    /// What is more than before. Memory and mappings may vary a little: the heap is shared by threads.
    fn more_than(&self, before: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.descriptors != before.descriptors {
            found.push(format!("descriptors {:?}, before {:?}", self.descriptors, before.descriptors));
        }
        if !self.childless {
            found.push(format!("children are left: {:?}", observe::children()));
        }
        if self.threads != before.threads {
            found.push(format!("{} threads, before {}", self.threads, before.threads));
        }
        if self.stacks > 256 {
            found.push(format!("{} stacks are kept, of 256 at most", self.stacks));
        }
        // Guard and stack are a mapping each.
        let stacks = self.stacks.saturating_sub(before.stacks);
        if self.mappings > before.mappings + 2 * stacks + 40 {
            found.push(format!("{} mappings, before {}", self.mappings, before.mappings));
        }
        // One page of data and one of stack for each, and 8 MiB for the heap's moods.
        if self.resident_kib > before.resident_kib + 8192 + stacks as u64 * 16 {
            found.push(format!("{} KiB resident, before {}", self.resident_kib, before.resident_kib));
        }
        found
    }

    fn json(&self) -> String {
        format!(
            "{{\"descriptors\": {}, \"mappings\": {}, \"stacks\": {}, \"threads\": {}, \"resident_kib\": {}}}",
            self.descriptors.len(),
            self.mappings,
            self.stacks,
            self.threads,
            self.resident_kib
        )
    }
}

/// Runs all rounds and returns whether everything was right.
pub(crate) fn run(options: &Options) -> bool {
    let start = Instant::now();
    let page = disturb::page();
    let tally = Arc::new(Tally::default());
    disturb::count_continues();
    let first = Holdings::now();
    let settle = SETTLED.min(options.launches / 2);
    let mut round = 0;
    rounds(options, &tally, settle, start, &mut round);
    let settled = Holdings::now();
    let settled_at = tally.launches.load(Relaxed);
    println!("after {settled_at} launches: {}", settled.json());
    options.control.as_deref().map(disturb::plant);
    rounds(options, &tally, options.launches, start, &mut round);
    let end = Holdings::now();
    let mut problems = end.more_than(&settled);
    if end.threads != first.threads {
        problems.push(format!("{} threads, at the start {}", end.threads, first.threads));
    }
    for (count, what) in
        [(tally.wrong.load(Relaxed), "wrong answers"), (page.astray.load(Relaxed), "handlers in children")]
    {
        if count != 0 {
            problems.push(format!("{count} {what}"));
        }
    }
    report(options, &tally, page, start.elapsed(), (settled_at, &settled, &end), &problems);
    problems.is_empty()
}

/// Rounds until there have been so many launches, or the time is over.
fn rounds(options: &Options, tally: &Arc<Tally>, until: u64, start: Instant, round: &mut u64) {
    let size = (options.launches / 60).clamp(300, 20_000);
    let control = options.control.as_deref() == Some("answer");
    let shared = Fixtures::new(tally, control).expect("programs and a zygote");
    while tally.made() < until && start.elapsed().as_secs() < options.seconds {
        let goal = (tally.made() + size).min(until);
        let weather = WEATHERS[*round as usize % WEATHERS.len()];
        one_round(options, &shared, weather, goal, options.seed.wrapping_add(*round << 16));
        *round += 1;
        if tally.wrong.load(Relaxed) > 100 {
            return;
        }
    }
}

fn one_round(options: &Options, shared: &Fixtures, weather: Weather, goal: u64, seed: u64) {
    let tally = &shared.tally;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        if weather.signals {
            scope.spawn(|| disturb::signals(&done));
        }
        if weather.reapers {
            scope.spawn(|| disturb::reap(&done));
        }
        if weather.forks {
            scope.spawn(|| disturb::fork_host(&done, shared));
        }
        // Says that there is progress; the supervisor ends a host without.
        scope.spawn(|| {
            let mut said = None;
            while !done.load(Relaxed) {
                if said.is_none_or(|then: Instant| then.elapsed() > Duration::from_secs(1)) {
                    said = Some(Instant::now());
                    disturb::progress(tally.made());
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        let worker = |thread: u64| {
            let filtered = weather.filters && thread % 4 == 1;
            move || {
                if filtered {
                    disturb::filter(thread / 4);
                }
                let around = Around { reapers: weather.reapers, filtered };
                let mut worker = Worker::new(shared, seed + thread + 1, around);
                while tally.made() < goal {
                    worker.step();
                }
            }
        };
        let workers: Vec<_> = (0..options.threads).map(|thread| scope.spawn(worker(thread))).collect();
        workers.into_iter().for_each(|worker| worker.join().expect("a worker"));
        done.store(true, Relaxed);
    });
}

fn report(
    options: &Options,
    tally: &Tally,
    page: &Page,
    time: Duration,
    (settled_at, settled, end): (u64, &Holdings, &Holdings),
    problems: &[String],
) {
    let read = |count: &AtomicU64| count.load(Relaxed);
    let launches = read(&tally.launches);
    let forms = FORMS.iter().zip(&tally.by_form).map(|(form, count)| format!("\"{}\": {}", form.0, read(count)));
    let problems: Vec<_> = problems.iter().map(|problem| format!("{problem:?}")).collect();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let json = format!(
        "{{\n  \"seed\": {},\n  \"kernel\": {:?},\n  \"arch\": {:?},\n  \"cpus\": {},\n  \"threads\": {},\n  \"asked\": {},\n  \
         \"launches\": {launches},\n  \"wrong\": {},\n  \"statuses_taken_by_reapers\": {},\n  \"refused_by_filters\": {},\n  \"seconds\": {:.1},\n  \"launches_per_second\": {:.0},\n  \
         \"handlers\": {},\n  \"handlers_in_children\": {},\n  \"stops\": {},\n  \"reaped_by_others\": {},\n  \"forked_copies\": {},\n  \
         \"launches_of_copies\": {},\n  \"forms\": {{{}}},\n  \"settled_after\": {settled_at},\n  \"settled\": {},\n  \"end\": {},\n  \"problems\": [{}]\n}}\n",
        options.seed,
        kernel.trim(),
        std::env::consts::ARCH,
        thread::available_parallelism().map_or(0, usize::from),
        options.threads,
        options.launches,
        read(&tally.wrong),
        read(&tally.lost),
        read(&tally.refused),
        time.as_secs_f64(),
        launches as f64 / time.as_secs_f64(),
        read(&page.handled),
        read(&page.astray),
        read(&page.continued),
        read(&page.reaped),
        read(&page.copies),
        read(&page.by_copies),
        forms.collect::<Vec<_>>().join(", "),
        settled.json(),
        end.json(),
        problems.join(", "),
    );
    print!("{json}");
    if let Some(path) = &options.json {
        std::fs::write(path, json).expect("the figures");
    }
}
