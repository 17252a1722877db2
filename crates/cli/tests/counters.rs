//! What is counted for a user or for the machine: docs/sandbox.md says of each limit of this kernel what a sandbox can take.

testing::usual_surroundings!();

use std::{fs, path::PathBuf};

/// Limits below /proc/sys that count nothing for a user or for the machine that a program could take: those of a process, of the
/// network namespace, of what is refused, and settings that contain such a word.
const NO_COUNTERS: [&str; 50] = [
    "fs/fanotify/max_queued_events",
    "fs/fuse/max_pages_limit",
    "fs/fuse/max_request_timeout",
    "fs/inotify/max_queued_events",
    "fs/pipe-max-size",
    "kernel/auto_msgmni",
    "kernel/core_file_note_size_limit",
    "kernel/core_pipe_limit",
    "kernel/max_lock_depth",
    "kernel/max_rcu_stall_to_panic",
    "kernel/ngroups_max",
    "kernel/numa_balancing_promote_rate_limit_MBps",
    "kernel/oops_limit",
    "kernel/perf_cpu_time_max_percent",
    "kernel/perf_event_max_contexts_per_stack",
    "kernel/perf_event_max_sample_rate",
    "kernel/perf_event_max_stack",
    "kernel/printk_ratelimit",
    "kernel/printk_ratelimit_burst",
    "kernel/sched_deadline_period_max_us",
    "kernel/sched_util_clamp_max",
    "kernel/warn_limit",
    "net/core/flow_limit_cpu_bitmap",
    "net/core/flow_limit_table_len",
    "net/core/max_skb_frags",
    "net/core/netdev_max_backlog",
    "net/core/optmem_max",
    "net/core/rmem_max",
    "net/core/skb_defer_max",
    "net/core/somaxconn",
    "net/core/wmem_max",
    "net/ipv4/fib_sync_mem",
    "net/ipv4/icmp_ratelimit",
    "net/ipv4/igmp_max_memberships",
    "net/ipv4/igmp_max_msf",
    "net/ipv4/inet_peer_maxttl",
    "net/ipv4/ipfrag_max_dist",
    "net/ipv4/route/max_size",
    "net/ipv4/tcp_challenge_ack_limit",
    "net/ipv4/tcp_invalid_ratelimit",
    "net/ipv4/tcp_limit_output_bytes",
    "net/ipv4/tcp_max_reordering",
    "net/ipv4/tcp_max_syn_backlog",
    "net/ipv4/tcp_max_tw_buckets",
    "net/ipv4/tcp_rto_max_ms",
    "net/unix/max_dgram_qlen",
    "vm/compact_memory",
    "vm/hugetlb_optimize_vmemmap",
    "vm/max_map_count",
    "vm/overcommit_memory",
];

/// Each limit of this kernel is in the table of docs/sandbox.md, or is none of those.
#[test]
fn counters_of_the_machine_are_documented() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sandbox.md")).expect("the page");
    let mut unknown = Vec::new();
    for part in ["user", "fs", "kernel", "vm", "net/core", "net/unix", "net/ipv4"] {
        let mut directories = vec![PathBuf::from("/proc/sys").join(part)];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let path = entry.path();
                let name = path.strip_prefix("/proc/sys").expect("below it").to_str().expect("text").to_owned();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    // Devices and interfaces, of which there may be any.
                    if !["net/ipv4/conf", "net/ipv4/neigh", "net/ipv4/netfilter", "fs/xfs", "fs/binfmt_misc"]
                        .contains(&&*name)
                    {
                        directories.push(path);
                    }
                    continue;
                }
                let words = ["max", "limit", "_mem", "mni", "hugepages"];
                let is_limit = words.iter().any(|word| name.rsplit('/').next().is_some_and(|last| last.contains(word)));
                if is_limit && !NO_COUNTERS.contains(&&*name) && !page.contains(&format!("`{name}`")) {
                    unknown.push(name);
                }
            }
        }
    }
    assert!(unknown.is_empty(), "neither documented nor known: {unknown:#?}");
}
