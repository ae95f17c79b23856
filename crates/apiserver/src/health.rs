//! Is all well? `/healthz`, `/livez` and `/readyz`, whole or one check at a time.

use std::fmt;
use std::sync::Arc;

use mizzen_registry::{Future, Health};

use crate::answer::{self, Answer};
use crate::request::{Query, Request};
use crate::server::Inner;

/// Something outside on which the server depends. `/healthz` and `/readyz` ask for it, `/livez` does not: a new start
/// would not help.
pub trait HealthCheck: fmt::Debug + Send + Sync {
    /// The name under which it is listed.
    fn name(&self) -> &str;

    /// What is wrong. Answers in bounded time.
    fn check(&self) -> Future<'_, Result<(), String>>;
}

/// A check of the server itself, and whether it passes.
type Own = (&'static str, fn(&Inner) -> bool);

const CHECKS: [Own; 4] = [
    ("ping", |_| true),
    ("log", |_| true),
    ("etcd", |server| !matches!(server.registry.store().health(), Health::Failed(_))),
    ("poststarthook/bootstrap", |_| true),
];
/// A full disk is not among the others: a new start would not help.
const READY_CHECKS: [Own; 2] = [
    ("storage-space", |server| !matches!(server.registry.store().health(), Health::Full(_))),
    ("shutdown", |server| !server.is_leaving()),
];

enum Check<'a> {
    Own(&'a Own),
    Outside(&'a dyn HealthCheck),
}

impl Check<'_> {
    fn name(&self) -> &str {
        match self {
            Check::Own((name, _)) => name,
            Check::Outside(check) => check.name(),
        }
    }

    async fn run(&self, server: &Inner) -> Result<(), String> {
        match self {
            Check::Own((_, passes)) if passes(server) => Ok(()),
            Check::Own((name, _)) => Err(format!("{name} check failed")),
            Check::Outside(check) => check.check().await,
        }
    }
}

/// `/livez?verbose`, `/readyz/ping`, …
pub(crate) async fn answer(server: &Arc<Inner>, request: &Request, parts: &[&str]) -> Answer {
    let root = parts[0];
    let checks = checks(server, root);
    if parts.len() == 1 {
        return report(root, &checks, server, &request.query).await;
    }
    let name = parts[1..].join("/");
    let Some(check) = checks.iter().find(|check| check.name() == name) else {
        return answer::text(404, "404 page not found\n");
    };
    match check.run(server).await {
        Ok(()) => answer::text(200, "ok"),
        Err(problem) => answer::text(500, format!("internal server error: {problem}\n")),
    }
}

fn checks<'a>(server: &'a Inner, root: &str) -> Vec<Check<'a>> {
    let ready = if root == "readyz" { &READY_CHECKS[..] } else { &[] };
    let outside = if root == "livez" { &[] } else { server.options.health.as_slice() };
    let own = CHECKS.iter().chain(ready).map(Check::Own);
    own.chain(outside.iter().map(|check| Check::Outside(&**check))).collect()
}

async fn report(root: &str, checks: &[Check<'_>], server: &Inner, query: &Query) -> Answer {
    let excluded = query.all("exclude");
    let (mut lines, mut is_well) = (String::new(), true);
    for check in checks {
        let name = check.name();
        if excluded.contains(&name) {
            lines += &format!("[+]{name} excluded: ok\n");
        } else if check.run(server).await.is_ok() {
            lines += &format!("[+]{name} ok\n");
        } else {
            lines += &format!("[-]{name} failed: reason withheld\n");
            is_well = false;
        }
    }
    if !is_well {
        return answer::text(500, format!("{lines}{root} check failed\n"));
    }
    if query.get("verbose").is_some() {
        return answer::text(200, format!("{lines}{root} check passed\n"));
    }
    answer::text(200, "ok")
}
