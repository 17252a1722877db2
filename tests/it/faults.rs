//! Faults and bad input that need more than a line of the behaviour table (which has the others, in
//! `cases/faults.toml`), and what handles do. Each scene of `bin/fault.rs` is played in a process of its own.

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
    errno_is_left_alone
    a_launch_learns_of_a_refusal
    a_launch_learns_of_a_kill
    a_launch_does_not_try_a_refusal_again
    a_launch_does_not_try_a_kill_again
    pids_limit
    too_many_descriptors
    waiting_with_a_limit
    waiting_with_a_limit_without_pidfds
    waiting_for_ever
    waiting_for_ever_without_pidfds
    dropped_children
    dropped_children_without_pidfds
    reaped_by_another
    usage_is_known
    much_output_on_both_streams
    one_childs_pipe_to_another
    a_busy_program
    a_busy_program_retried
    signals_to_a_child
    launches_from_a_thread_with_its_own_mask
    state_after_every_failure
}
