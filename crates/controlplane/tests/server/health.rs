//! Health checks of dependencies.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use mizzen_apiserver::{HealthCheck, HealthEndpoint, Options, kube_apiserver_boot_sequence};
use mizzen_registry::BoxFuture;

use crate::rig::Rig;

#[derive(Debug)]
struct Tired;

impl HealthCheck for Tired {
    fn name(&self) -> &str {
        "other"
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Err("it is tired".to_string()) })
    }
}

/// The code and the text of a page.
async fn page(rig: &Rig, path: &str) -> (u16, String) {
    let answer = rig.send("GET", path, "").await;
    let code = answer.status().as_u16();
    (
        code,
        String::from_utf8(
            answer
                .into_body()
                .collect()
                .await
                .expect("no failure")
                .to_bytes()
                .to_vec(),
        )
        .unwrap(),
    )
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_dependency_fails_readiness_but_not_liveness() {
    let rig = Rig::with(Options {
        health: vec![Arc::new(Tired)],
        ..Options::default()
    })
    .await;
    for root in ["/healthz", "/readyz"] {
        let (code, text) = page(&rig, root).await;
        assert!(
            code == 500 && text.contains("[-]other failed: reason withheld\n"),
            "{code} {text}"
        );
        assert!(
            text.contains("[+]ping ok\n") && text.ends_with("check failed\n"),
            "{text}"
        );
        let told = page(&rig, &format!("{root}/other")).await;
        assert_eq!(
            told,
            (500, "internal server error: it is tired\n".to_string())
        );
        assert_eq!(page(&rig, &format!("{root}?exclude=other")).await.0, 200);
    }
    assert_eq!(page(&rig, "/livez").await, (200, "ok".to_string()));
    assert_eq!(page(&rig, "/livez/other").await.0, 404);
    let root = page(&rig, "/").await.1;
    assert!(
        root.contains("\"/healthz/other\"") && root.contains("\"/readyz/other\""),
        "{root}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_exclusion_without_a_match_is_a_warning() {
    let rig = Rig::with(Options {
        health: vec![Arc::new(Tired)],
        ..Options::default()
    })
    .await;
    let (code, text) = page(&rig, "/readyz?verbose&exclude=other&exclude=z&exclude=a").await;
    assert_eq!(code, 200);
    let end = "[+]shutdown ok\nwarn: some health checks cannot be excluded: no matches for \"a\",\"z\"\nreadyz check passed\n";
    assert!(
        text.contains("[+]other excluded: ok\n") && text.ends_with(end),
        "{text}"
    );
    assert_eq!(
        page(&rig, "/readyz?exclude=other&exclude=z").await,
        (200, "ok".to_string())
    );
}

/// What kube-apiserver v1.36.4 lists.
#[tokio::test(start_paused = true)]
async fn checks_are_listed_in_kube_apiservers_order() {
    #[derive(Debug)]
    struct Loopback;

    impl HealthCheck for Loopback {
        fn name(&self) -> &str {
            "loopback-serving-certificate"
        }

        fn check(&self) -> BoxFuture<'_, Result<(), String>> {
            Box::pin(async { Ok(()) })
        }

        fn endpoint(&self) -> HealthEndpoint {
            HealthEndpoint::Livez
        }
    }

    let boot_sequence = kube_apiserver_boot_sequence(false);
    let rig = Rig::with(Options {
        health: vec![Arc::new(Loopback)],
        boot_sequence: boot_sequence.clone(),
        ..Options::default()
    })
    .await;
    let boot = [
        "start-apiserver-admission-initializer",
        "generic-apiserver-start-informers",
        "priority-and-fairness-config-consumer",
        "priority-and-fairness-filter",
        "storage-object-count-tracker-hook",
        "start-apiextensions-informers",
        "start-apiextensions-controllers",
        "crd-informer-synced",
        "start-system-namespaces-controller",
        "peer-endpoint-reconciler-controller",
        "start-cluster-authentication-info-controller",
        "start-kube-apiserver-identity-lease-controller",
        "start-kube-apiserver-identity-lease-garbage-collector",
        "storage-readiness",
        "start-legacy-token-tracking-controller",
        "start-service-ip-repair-controllers",
        "rbac/bootstrap-roles",
        "scheduling/bootstrap-system-priority-classes",
        "priority-and-fairness-config-producer",
        "bootstrap-controller",
        "start-kubernetes-service-cidr-controller",
        "start-kube-aggregator-informers",
        "apiservice-status-local-available-controller",
        "apiservice-status-remote-available-controller",
        "apiservice-registration-controller",
        "apiservice-discovery-controller",
        "kube-apiserver-autoregistration",
        "autoregister-completion",
        "apiservice-openapi-controller",
        "apiservice-openapiv3-controller",
    ];
    let boot: Vec<String> = boot
        .iter()
        .map(|name| match *name {
            "autoregister-completion" => name.to_string(),
            hook => format!("poststarthook/{hook}"),
        })
        .collect();
    rig.server.complete(&boot_sequence);
    for (root, first, last) in [
        (
            "healthz",
            &["ping", "log", "loopback-serving-certificate", "etcd"][..],
            &[][..],
        ),
        (
            "livez",
            &["ping", "log", "loopback-serving-certificate", "etcd"][..],
            &[][..],
        ),
        (
            "readyz",
            &["ping", "log", "etcd", "etcd-readiness", "informer-sync"][..],
            &["shutdown"][..],
        ),
    ] {
        let names = first
            .iter()
            .copied()
            .chain(boot.iter().map(String::as_str))
            .chain(last.iter().copied());
        let lines: String = names.map(|name| format!("[+]{name} ok\n")).collect();
        let text = format!("{lines}{root} check passed\n");
        assert_eq!(page(&rig, &format!("/{root}?verbose")).await, (200, text));
    }
    let paths = page(&rig, "/").await.1;
    for path in [
        "/livez/poststarthook/rbac/bootstrap-roles",
        "/readyz/informer-sync",
        "/livez/log",
    ] {
        assert!(paths.contains(&format!("{path:?}")), "{path}");
        assert_eq!(page(&rig, path).await, (200, "ok".to_string()));
    }
    for path in [
        "/readyz/loopback-serving-certificate",
        "/livez/etcd-readiness",
        "/healthz/poststarthook",
    ] {
        assert_eq!(page(&rig, path).await.0, 404, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn results_of_health_checks_are_service_level_indicators() {
    let rig = Rig::with(Options {
        health: vec![Arc::new(Tired)],
        ..Options::default()
    })
    .await;
    let (_, text) = page(&rig, "/metrics/slis").await;
    assert!(
        text.contains("\nprocess_start_time_seconds ") && !text.contains("kubernetes_"),
        "{text}"
    );
    for path in [
        "/livez",
        "/readyz",
        "/readyz?verbose",
        "/readyz?exclude=other",
        "/readyz/other",
    ] {
        page(&rig, path).await;
    }
    let (code, text) = page(&rig, "/metrics/slis").await;
    assert_eq!(code, 200);
    for line in [
        "kubernetes_healthcheck{name=\"ping\",type=\"livez\"} 1",
        "kubernetes_healthcheck{name=\"other\",type=\"readyz\"} 0",
        "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"readyz\"} 3",
        // Neither an excluded check nor one that is asked for alone counts.
        "kubernetes_healthchecks_total{name=\"other\",status=\"error\",type=\"readyz\"} 2",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}: {text}");
    }
    assert!(
        !text.contains("name=\"other\",type=\"livez\"") && !text.contains("healthz"),
        "{text}"
    );
    let answer = rig.send("DELETE", "/metrics/slis", "").await;
    assert_eq!(
        answer.into_body().collect().await.unwrap().to_bytes(),
        "metrics reset\n"
    );
    assert_eq!(page(&rig, "/metrics/slis").await, (200, String::new()));
    assert_eq!(page(&rig, "/metrics/slis/").await.0, 404);
    assert!(page(&rig, "/").await.1.contains("\"/metrics/slis\""));
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_upstreams_labels() {
    let rig = Rig::new().await;
    rig.post(
        "/api/v1/namespaces?dryRun=All",
        r#"{"metadata":{"name":"a"}}"#,
    )
    .await
    .expect(201);
    rig.delete("/api/v1/namespaces/default/configmaps", "")
        .await
        .expect(200);
    page(&rig, "/livez").await;
    page(&rig, "/nothing/here").await;
    let text = page(&rig, "/metrics").await.1;
    let core = r#"group="",resource="#;
    for line in [
        format!(
            r#"apiserver_request_total{{code="201",component="apiserver",dry_run="All",{core}"namespaces",scope="resource",subresource="",verb="POST",version="v1"}} 1"#
        ),
        format!(
            r#"apiserver_request_total{{code="200",component="apiserver",dry_run="",{core}"configmaps",scope="namespace",subresource="",verb="DELETE",version="v1"}} 1"#
        ),
        format!(
            r#"apiserver_request_total{{code="200",component="",dry_run="",{core}"",scope="",subresource="/livez",verb="GET",version=""}} 1"#
        ),
        format!(
            r#"apiserver_request_total{{code="404",component="",dry_run="",{core}"",scope="",subresource="",verb="GET",version=""}} 1"#
        ),
        format!(
            r#"apiserver_response_sizes_count{{component="",{core}"",scope="",subresource="/livez",verb="GET",version=""}} 1"#
        ),
        r#"apiserver_resource_objects{group="",resource="namespaces"} 1"#.into(),
    ] {
        assert!(
            text.lines().any(|known| known == line),
            "{line} is not in\n{text}"
        );
    }
    let declared: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    assert!(declared.is_sorted(), "{declared:?}");
}

#[tokio::test(start_paused = true)]
async fn deleting_metrics_resets_the_request_counters() {
    let rig = Rig::new().await;
    page(&rig, "/api/v1/namespaces").await;
    let counted = |text: &str| text.contains("resource=\"namespaces\"");
    let answer = rig.send("GET", "/metrics", "").await;
    assert_eq!(answer.headers()["process-start-time-unix"], "1800000000");
    assert!(counted(&page(&rig, "/metrics").await.1));
    let answer = rig.send("DELETE", "/metrics", "").await;
    assert_eq!(
        answer.headers()["content-type"],
        "text/plain; charset=utf-8"
    );
    assert_eq!(
        answer.into_body().collect().await.unwrap().to_bytes(),
        "metrics reset\n"
    );
    let text = page(&rig, "/metrics").await.1;
    let requests = text
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total"));
    assert!(!requests.into_iter().any(counted), "{text}");
}
