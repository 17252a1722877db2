//! Targets for fuzzers, and tests with the inputs that found errors or reach rare code. Not part of ordinary builds.

mod settings;

mod sound;

use crate::plan::compile::compile;
use crate::plan::describe;
use crate::shell::fuzzed as shell;
use crate::zygote::fuzzed as zygote;

/// Makes a command of these bytes and compiles it, for one run and for many. Panics if a plan refers to memory
/// outside its arena, or is invalid for the child in another way.
pub fn plan(bytes: &[u8]) {
    let command = settings::command(bytes);
    for resolve in [false, true] {
        let Ok(plan) = compile(&command, resolve) else { continue };
        let faults = sound::faults(plan.arena());
        assert!(faults.is_empty(), "{faults:?} in {command:?}");
        assert!(describe::steps(&plan).iter().all(|step| !step.is_empty()));
    }
}

/// Gives these bytes to the code of a zygote's helper, as a message and as the parcel of a launch.
pub fn parcel(bytes: &[u8]) {
    zygote::message(bytes);
    zygote::parcel(bytes);
}

/// Classifies a line, and returns whether it is a simple command. If so, the command is written again with each word
/// in quotes, and this panics if the result differs.
pub fn line(bytes: &[u8]) -> bool {
    shell::line(bytes)
}

#[cfg(test)]
mod tests {
    use super::{line, parcel, plan, sound};
    use crate::Command;
    use crate::plan::compile::compile;
    use std::path::Path;

    /// Calls a target with each of its stored inputs.
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

    /// Random settings, from a generator with the same numbers everywhere.
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

    /// A caller of `posix_spawn(3)` may pass no arguments, not even the program's name.
    #[test]
    fn a_command_without_any_argument_is_one() {
        let mut command = Command::new("/bin/true");
        command.exactly(vec!["/bin/true".into()], Vec::new(), std::iter::empty());
        assert_eq!((command.get_args().count(), format!("{command:?}")), (0, "[\"/bin/true\"]".into()));
        command.arg0("name");
        assert_eq!(format!("{command:?}"), "[\"/bin/true\"] \"name\"");
    }

    /// The checker finds each word that refers to memory outside the arena, wherever the word is.
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
            // The vectors contain addresses of the original arena.
            sound::faults_at(words, plan.arena().as_ptr() as u64).is_empty()
        };
        assert!(is_sound(&good));
        let base = plan.arena().as_ptr() as u64;
        // The words to change: the header's numbers, and each address in the vectors.
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
