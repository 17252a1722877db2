//! What fuzzers drive from outside, and the tests with the inputs that were worth keeping. In no ordinary build.

mod settings;

mod sound;

use crate::compile::compile;
use crate::plan::describe;
use crate::shell::fuzzed as shell;
use crate::zygote::fuzzed as zygote;

/// Makes a command of these bytes and compiles it, for one run and for many. Panics if a plan is not what the child
/// can trust.
pub fn plan(bytes: &[u8]) {
    let command = settings::command(bytes);
    for resolve in [false, true] {
        let Ok(plan) = compile(&command, resolve) else { continue };
        let faults = sound::faults(plan.arena());
        assert!(faults.is_empty(), "{faults:?} in {command:?}");
        assert!(describe::steps(&plan).iter().all(|step| !step.is_empty()));
    }
}

/// Takes these bytes for what a zygote's helper is sent: a message, and the parcel of a launch.
pub fn parcel(bytes: &[u8]) {
    zygote::message(bytes);
    zygote::parcel(bytes);
}

/// Classifies a line. Panics if a simple command is another one when it is written again, each of its words in
/// quotes. Is it one?
pub fn line(bytes: &[u8]) -> bool {
    shell::line(bytes)
}

#[cfg(test)]
mod tests {
    use super::{line, parcel, plan, sound};
    use crate::Command;
    use crate::compile::compile;
    use std::path::Path;

    /// Each kept input of a target.
    fn seeds(target: &str, run: fn(&[u8])) {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
        let mut count = 0;
        for entry in std::fs::read_dir(place).expect("seeds") {
            run(&std::fs::read(entry.expect("a seed").path()).expect("a seed"));
            count += 1;
        }
        assert!(count > 0, "no seeds of {target}");
    }

    #[test]
    fn seeds_of_plans_compile_to_sound_ones() {
        seeds("plan", plan);
    }

    #[test]
    fn seeds_of_parcels_are_read_within_their_bounds() {
        seeds("parcel", parcel);
    }

    #[test]
    fn seeds_of_lines_are_the_same_when_quoted() {
        seeds("line", |bytes| {
            line(bytes);
        });
        assert!(line(b"A=1 'p' \"a b\" <in 2>&1 >>'f g' # c") && !line(b"p *"));
    }

    /// Settings made at random, from a generator that is the same everywhere.
    #[test]
    fn random_settings_compile_to_sound_plans() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for length in (0..400).cycle().take(1200) {
            let bytes: Vec<u8> = std::iter::repeat_with(|| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .take(length)
            .collect();
            plan(&bytes);
            parcel(&bytes);
        }
    }

    /// As `posix_spawn(3)` may be given them.
    #[test]
    fn a_command_without_any_argument_is_one() {
        let mut command = Command::new("/bin/true");
        command.exactly(vec!["/bin/true".into()], Vec::new(), std::iter::empty());
        assert_eq!((command.get_args().count(), format!("{command:?}")), (0, "[\"/bin/true\"]".into()));
        command.arg0("name");
        assert_eq!(format!("{command:?}"), "[\"/bin/true\"] \"name\"");
    }

    /// The checker is not blind: a word that leads outside is seen, wherever it stands.
    #[test]
    fn a_spoilt_plan_is_not_sound() {
        let mut command = Command::new("/bin/true");
        command
            .args(["a", "b"])
            .current_dir("/")
            .umask(0o22)
            .rlimit(crate::Resource::Core, 0, 0)
            .scripts_by_shell(true);
        let plan = compile(&command, true).expect("a plan");
        let good = plan.arena().to_vec();
        let is_sound = |words: &[u64]| {
            // The vectors hold addresses of the original.
            sound::faults_at(words, plan.arena().as_ptr() as u64).is_empty()
        };
        assert!(is_sound(&good));
        let base = plan.arena().as_ptr() as u64;
        // The header's numbers, and each address in the vectors.
        let header = 0..9;
        let vectors = (9..good.len()).filter(|&at| good[at] > base && good[at] < base + good.len() as u64 * 8);
        let places: Vec<usize> = header.chain(vectors).collect();
        assert!(places.len() > 12, "{places:?}");
        for at in places {
            let mut spoilt = good.clone();
            spoilt[at] ^= 0x00ff_0000_00ff_0000;
            assert!(!is_sound(&spoilt), "word {at}");
        }
    }
}
