//! Faults and invalid input that a line of the behaviour table cannot express (`cases/faults.toml` has the others), and
//! tests of handles. Each scene of `bin/fault.rs` runs in its own process.

testing::usual_surroundings!();

use std::process::Command;

fn play(scene: &str) {
    let helper = Command::new(env!("CARGO_BIN_EXE_fault"))
        .args([scene, env!("CARGO_BIN_EXE_probe")])
        .output()
        .expect("the helper starts");
    let said = String::from_utf8_lossy(&helper.stderr);
    eprint!("{said}");
    assert!(helper.status.success(), "{scene} ({}):\n{said}", helper.status);
}

macro_rules! scenes {
    ($($scene:ident)*) => { $(
        #[test]
        fn $scene() {
            play(stringify!($scene));
        }
    )* };
}

scenes! {
    errno_is_preserved
    a_launch_learns_of_a_refusal
    a_launch_learns_of_a_kill
    a_refused_call_is_not_tried_again
    a_call_that_kills_is_not_tried_again
    a_pids_limit_is_an_error_of_clone
    too_many_descriptors
    waiting_with_a_limit
    waiting_with_a_limit_without_pidfds
    waiting_for_ever
    waiting_for_ever_without_pidfds
    dropped_children
    dropped_children_without_pidfds
    a_child_reaped_by_other_code_is_reported
    usage_is_reported
    large_output_on_both_streams_is_read
    a_pipe_connects_two_children
    a_busy_program
    a_busy_program_retried
    signals_to_a_child
    launches_from_a_thread_with_its_own_mask
    state_after_every_failure
}
