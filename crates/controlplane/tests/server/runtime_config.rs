//! Which API versions are served, as `--runtime-config` says.

use mizzen_controlplane::{ApiSetting, Options, check_runtime_config};

use crate::rig::Rig;

fn settings(text: &str) -> Result<Vec<ApiSetting>, String> {
    text.split(',').map(str::parse).collect()
}

fn check(text: &str, legacy_apis: bool) -> Result<(), String> {
    check_runtime_config(&settings(text)?, legacy_apis, false)
}

#[tokio::test]
async fn a_version_that_is_disabled_is_not_served() {
    let runtime_config = settings("autoscaling/v1=false,batch/v1/cronjobs=false").unwrap();
    let rig = Rig::with(Options {
        runtime_config,
        ..Options::default()
    })
    .await;
    let autoscaling = rig.get("/apis/autoscaling").await.expect(200);
    let versions: Vec<_> = autoscaling.body["versions"]
        .list()
        .iter()
        .map(|it| it["version"].str())
        .collect();
    assert_eq!(versions, ["v2"]);
    rig.get("/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers")
        .await
        .expect(404);
    rig.get("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers")
        .await
        .expect(200);
    rig.get("/apis/batch/v1/namespaces/default/cronjobs")
        .await
        .expect(404);
    rig.get("/apis/batch/v1/namespaces/default/jobs")
        .await
        .expect(200);
}

#[tokio::test]
async fn the_more_exact_setting_decides() {
    let runtime_config = settings("batch/v1/jobs=true,batch/v1=false").unwrap();
    let rig = Rig::with(Options {
        runtime_config,
        ..Options::default()
    })
    .await;
    rig.get("/apis/batch/v1/namespaces/default/cronjobs")
        .await
        .expect(404);
    rig.get("/apis/batch/v1/namespaces/default/jobs")
        .await
        .expect(200);
}

#[test]
fn settings_that_describe_what_is_served_are_accepted() {
    for text in [
        "api/ga=true",
        "api/beta=false,api/alpha=false",
        "/v1=true",
        "apps/v1",
        "apps/v1/deployments=true",
        "batch/v1beta1=false",
        "storage.k8s.io/v1beta1=0",
    ] {
        assert_eq!(check(text, false), Ok(()), "{text}");
    }
    for text in [
        "batch/v1beta1=true",
        "extensions/v1beta1=true",
        "apps/v1beta2/deployments=true",
    ] {
        assert_eq!(check(text, true), Ok(()), "{text}");
    }
}

#[test]
fn unsupported_settings_are_rejected() {
    for (text, expected) in [
        ("v1=true", "runtime-config invalid key v1"),
        ("a/b/c/d=true", "runtime-config invalid key a/b/c/d"),
        ("api/all=maybe", "invalid value api/all=maybe"),
        (
            "batch/v1=maybe",
            r#"invalid value of batch/v1: maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax"#,
        ),
        (
            "apps/v1/Deployments=true",
            "resource is always lowercase plural",
        ),
        ("x.k8s.io/v1=true", "unknown api groups x.k8s.io/v1"),
        (
            "batch/v9=true",
            "group version batch/v9 that has not been registered",
        ),
        (
            "api/all=false",
            "invalid runtime-config with only api/all=false",
        ),
        (
            "batch/v1beta1=true",
            "start the server with --legacy-apis to serve it",
        ),
        (
            "extensions/v1beta1=true",
            "start the server with --legacy-apis to serve it",
        ),
        (
            "autoscaling/v2beta2=true",
            "start the server with --legacy-apis to serve it",
        ),
        (
            "resource.k8s.io/v1beta1=true",
            "asks for a version or resource that is not available",
        ),
        ("api/beta=true", "admissionregistration.k8s.io/v1beta1"),
        ("api/alpha=true", "resource.k8s.io/v1alpha3"),
        (
            "/v1=false",
            "/v1=false is not supported: the server itself uses /v1/",
        ),
        (
            "rbac.authorization.k8s.io/v1=false",
            "the server itself uses rbac.authorization.k8s.io/v1/",
        ),
    ] {
        let refusal = check(text, false).unwrap_err();
        assert!(refusal.contains(expected), "{text}: {refusal}");
    }
    let refusal =
        check_runtime_config(&settings("apps/v1=false").unwrap(), false, true).unwrap_err();
    assert!(
        refusal.contains("the controllers of `mizzen up` use apps/v1/"),
        "{refusal}"
    );
}
