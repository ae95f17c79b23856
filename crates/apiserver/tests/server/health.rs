//! Health that depends on others.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use mizzen_apiserver::{HealthCheck, Options};
use mizzen_registry::Future;

use crate::rig::Rig;

#[derive(Debug)]
struct Tired;

impl HealthCheck for Tired {
    fn name(&self) -> &str {
        "other"
    }

    fn check(&self) -> Future<'_, Result<(), String>> {
        Box::pin(async { Err("it is tired".to_string()) })
    }
}

/// The code and the text of a page.
async fn page(rig: &Rig, path: &str) -> (u16, String) {
    let answer = rig.send("GET", path, "").await;
    let code = answer.status().as_u16();
    (
        code,
        String::from_utf8(answer.into_body().collect().await.expect("no failure").to_bytes().to_vec())
            .unwrap(),
    )
}

#[tokio::test(start_paused = true)]
async fn what_is_unwell_outside_keeps_the_server_from_being_ready_but_not_alive() {
    let rig = Rig::with(Options { health: vec![Arc::new(Tired)], ..Options::default() }).await;
    for root in ["/healthz", "/readyz"] {
        let (code, text) = page(&rig, root).await;
        assert!(code == 500 && text.contains("[-]other failed: reason withheld\n"), "{code} {text}");
        assert!(text.contains("[+]ping ok\n") && text.ends_with("check failed\n"), "{text}");
        let told = page(&rig, &format!("{root}/other")).await;
        assert_eq!(told, (500, "internal server error: it is tired\n".to_string()));
        assert_eq!(page(&rig, &format!("{root}?exclude=other")).await.0, 200);
    }
    assert_eq!(page(&rig, "/livez").await, (200, "ok".to_string()));
    assert_eq!(page(&rig, "/livez/other").await.0, 404);
    let root = page(&rig, "/").await.1;
    assert!(root.contains("\"/healthz/other\"") && root.contains("\"/readyz/other\""), "{root}");
}
