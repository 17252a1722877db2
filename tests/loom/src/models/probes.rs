//! The results of probes: the first probe's stay, and what is lost meanwhile stays lost until it has worked.

use super::features::{ALL, Feature, Known};
use crate::Model;
use loom::thread;
use std::sync::Arc;

pub const MODEL: Model = Model { name: "probes", run: probes, warm: || (), switches: Some(2) };

fn probes() {
    let known = Arc::new(Known::new());
    let has = |feature: Feature| known.get(0, || 0, || true).is_some_and(|found| found.0 & feature as u32 != 0);
    has(Feature::GetFd);
    // Touches the other two words, before there is a second thread.
    known.lose(Feature::ThreadFd, 0, true);
    known.regain(0);
    let probe = |found: u32, lost: Feature| {
        let known = Arc::clone(&known);
        move || {
            let found = known.note(found, true);
            known.lose(lost, 0, true);
            known.regain(Feature::ProcFd as u32);
            found.0
        }
    };
    let first = thread::spawn(probe(ALL, Feature::GetFd));
    let second = thread::spawn(probe(ALL & !(Feature::Clone3 as u32), Feature::CloseRange));
    let both = [first.join().expect("no panic"), second.join().expect("no panic")];
    let same = both.map(|found| found & Feature::Clone3 as u32);
    assert_eq!(same[0], same[1], "both use the first result");
    assert!(!has(Feature::GetFd) && !has(Feature::CloseRange), "each was lost after a probe");
    assert!(has(Feature::ThreadFd) && has(Feature::ProcFd), "nothing else is lost");
    assert_eq!(has(Feature::Clone3), same[0] != 0);
    known.regain(Feature::GetFd as u32);
    assert!(has(Feature::GetFd));
}
