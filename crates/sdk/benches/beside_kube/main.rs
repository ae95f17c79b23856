//! Informers, queues and controllers against `kube-runtime`'s reflector, store and `Controller`, on the same data in one
//! run. Claims: at most half the memory, synced in at most half the time, 50,000 updates a second into handlers, a look-up
//! by index within 1 µs during writes, 1,000,000 keys a second through a queue by 4 tasks; a controller reconciles an update
//! sooner, at half the memory and for about the same CPU.
//!
//! `cargo bench -p mizzen-sdk`. Each side runs in its own process, so that neither affects the other's memory.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures the machine's own time"
)]

mod controllers;
mod feed;
mod index;
mod queue;
mod sides;

use std::process::{Command, Stdio};

/// The results of a side: names and numbers.
type Figures = Vec<(String, f64)>;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let side = arguments
        .iter()
        .find_map(|argument| argument.strip_prefix("--side="));
    match side {
        Some("sdk") => print(sides::measure_sdk()),
        Some("kube") => print(sides::measure_kube()),
        Some("sdk-controller") => print(controllers::measure_sdk()),
        Some("kube-controller") => print(controllers::measure_kube()),
        Some("index") => print(index::measure()),
        Some("queue") => print(queue::measure()),
        // Test runs over all targets include this one and need no figures.
        _ if arguments.iter().any(|argument| argument == "--bench") => report(),
        _ => {}
    }
}

fn print(figures: Figures) {
    for (name, figure) in figures {
        println!("{name} {figure}");
    }
}

/// Runs one side in its own process.
fn run(side: &str) -> Figures {
    let program = std::env::current_exe().expect("we know who we are");
    let output = Command::new(program)
        .arg(format!("--side={side}"))
        .stderr(Stdio::inherit())
        .output();
    let output = output.expect("we can be run");
    assert!(output.status.success(), "{side} failed");
    let figure = |line: &str| {
        let (name, figure) = line.rsplit_once(' ')?;
        Some((name.to_string(), figure.parse().ok()?))
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(figure)
        .collect()
}

fn report() {
    compare("100,000 pods", run("sdk"), run("kube"));
    for (name, figure) in run("index").into_iter().chain(run("queue")) {
        println!("{name:<44}{figure:>12.0}");
    }
    println!();
    let sides = (run("sdk-controller"), run("kube-controller"));
    compare("a controller of 10,000 pods", sides.0, sides.1);
}

/// Prints the figures of both sides beside each other.
fn compare(title: &str, sdk: Figures, kube: Figures) {
    println!(
        "{title:<44}{:>12}{:>14}{:>9}",
        "mizzen-sdk", "kube-runtime", "ratio"
    );
    for ((name, ours), (_, theirs)) in sdk.iter().zip(&kube) {
        println!("{name:<44}{ours:>12.0}{theirs:>14.0}{:>9.2}", ours / theirs);
    }
}
