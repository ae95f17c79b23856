//! The memory of compiled patterns, which is counted for the whole process: one test at a time.

use std::sync::Arc;

use mizzen_go_regexp::{MAX_COMPILED_BYTES, Regexp, compiled_bytes};
use parking_lot::Mutex;

static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn equal_patterns_are_shared_and_freed_with_their_last_holder() {
    let _alone = ALONE.lock();
    let (one, other) = (Regexp::new("^shared[a-z]+$"), Regexp::new("^shared[a-z]+$"));
    assert!(Arc::ptr_eq(&one, &other));
    let before = compiled_bytes();
    assert_eq!(one.is_match("sharedx"), Ok(true));
    let bytes = compiled_bytes();
    assert!(bytes > before, "compiled by the first match");
    assert_eq!(other.is_match("shared"), Ok(false));
    assert_eq!(compiled_bytes(), bytes);
    drop((one, other));
    assert_eq!(compiled_bytes(), before);
}

#[test]
fn unicode_classes_are_small() {
    let _alone = ALONE.lock();
    let regexp = Regexp::new(r"^[\p{L}\p{N}_]+\P{Greek}$");
    let before = compiled_bytes();
    assert_eq!(regexp.is_match("日本x"), Ok(true));
    let bytes = compiled_bytes() - before;
    assert!(bytes < 1000, "{bytes}");
}

#[test]
fn the_memory_of_compiled_patterns_is_bounded() {
    let _alone = ALONE.lock();
    let regexps: Vec<Arc<Regexp>> = (0..200)
        .map(|n| Regexp::new(&format!("^{n}{}", "(?:[a-z]{1000})".repeat(80))))
        .collect();
    for _ in 0..2 {
        for regexp in &regexps {
            assert_eq!(regexp.is_match("1"), Ok(false));
            assert!(compiled_bytes() <= MAX_COMPILED_BYTES);
        }
    }
    assert!(compiled_bytes() > 0);
}

#[test]
fn a_pattern_from_data_is_compiled_once_and_evicted_in_the_end() {
    let _alone = ALONE.lock();
    for n in 0..1000 {
        assert_eq!(Regexp::recent(&format!("^{n}$")).is_match("7"), Ok(n == 7));
    }
    let last = Regexp::recent("^999$");
    assert_eq!(last.is_match("999"), Ok(true));
    assert!(compiled_bytes() < 64 * 200);
}
