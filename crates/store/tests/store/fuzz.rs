//! The fuzzer's target of a log, on seeded inputs.

#[path = "../../../../fuzz/src/seeded.rs"]
mod seeded;
#[path = "../../../../fuzz/src/store_log.rs"]
mod store_log;

/// A frame with a batch of two puts and a delete, and one with the seal, as `store_log` takes them.
fn frames() -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let number = |number: u64| number.to_le_bytes().to_vec();
    let put = |key: &str, revision| {
        let place = [text("s"), text(key), number(revision)].concat();
        [
            b"P".to_vec(),
            place,
            number(u64::MAX),
            number(0),
            number(0),
            number(0),
            text("{}"),
        ]
        .concat()
    };
    let delete = [b"D".to_vec(), text("s"), text("a"), number(4)].concat();
    let batch = [b"B".to_vec(), number(4), put("a", 2), put("b", 3), delete].concat();
    let seal = [b"S".to_vec(), number(4), number(3)].concat();
    let framed = |payload: Vec<u8>| [&(payload.len() as u16).to_le_bytes()[..], &payload].concat();
    [framed(batch), framed(seal)].concat()
}

#[test]
fn logs_are_opened_or_rejected() {
    let frames = frames();
    seeded::check(store_log::store_log, &[&frames], 300);
}
