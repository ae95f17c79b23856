//! Which changes fit a project, and what is said of those that do not?

use mizzen_scaffold::{Api, ChangeError, Language, Project, Webhooks};

use crate::{api, project};

const BOTH: Webhooks = Webhooks {
    is_defaulting: true,
    is_validating: true,
};

#[track_caller]
fn check(outcome: Result<(), ChangeError>, expected: &str) {
    let message = outcome.unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
}

#[test]
fn a_kind_can_be_added_again_and_gets_a_controller_later() {
    let mut project = project();
    let mut oven = api("Oven");
    oven.has_controller = false;
    project.add_api(&oven).unwrap();
    assert!(!project.files().contains_key("src/controllers/oven.rs"));
    project.add_api(&api("Oven")).unwrap();
    project.add_api(&oven).unwrap();
    assert_eq!(project.kinds.len(), 1);
    assert!(project.files().contains_key("src/controllers/oven.rs"));
}

#[test]
fn a_kind_keeps_group_scope_and_plural() {
    let mut project = project();
    project.add_api(&api("Oven")).unwrap();
    let oven = api("Oven");
    let other_group = Api {
        group: "kitchen".into(),
        ..oven.clone()
    };
    check(
        project.add_api(&other_group),
        "Oven of shop exists and would have the same modules",
    );
    let cluster_scoped = Api {
        is_namespaced: false,
        ..oven.clone()
    };
    check(
        project.add_api(&cluster_scoped),
        "Oven of shop exists with --namespaced",
    );
    let other_plural = Api {
        plural: Some("ovenz".into()),
        ..oven.clone()
    };
    check(
        project.add_api(&other_plural),
        "Oven of shop exists with --plural ovens",
    );
    let other_version = Api {
        version: "v1".into(),
        ..oven
    };
    let hint = "mizzen create version --group shop --kind Oven --version v1";
    check(project.add_api(&other_version), hint);
}

#[test]
fn webhooks_and_versions_need_a_kind() {
    let mut project = project();
    let none = "the project has no kind Oven of the group shop; it has none";
    check(project.add_webhooks("shop", "Oven", BOTH), none);
    project.add_api(&api("Rack")).unwrap();
    let rack = "it has Rack of shop";
    check(project.add_version("shop", "Oven", "v1", false), rack);
}

#[test]
fn a_conversion_needs_a_second_version() {
    let mut project = project();
    project.add_api(&api("Oven")).unwrap();
    check(
        project.check_conversion("shop", "Oven"),
        "there is nothing to convert",
    );
    project.add_version("shop", "Oven", "v1", false).unwrap();
    project.check_conversion("shop", "Oven").unwrap();
    let files = project.files();
    assert!(files["src/api/oven/v1.rs"].contains("hub = super::v1alpha1::Oven"));
    assert!(files["tests/operator/conversions.rs"].contains("oven_v1_loses_nothing"));
    let hint = "--storage is for new versions";
    check(project.add_version("shop", "Oven", "v1", true), hint);
}

#[test]
fn bad_names_are_rejected_before_anything_changes() {
    let mut project = project();
    for (field, api) in [
        (
            "the group",
            Api {
                group: "shop.example.com".into(),
                ..api("Oven")
            },
        ),
        (
            "the version",
            Api {
                version: "1".into(),
                ..api("Oven")
            },
        ),
        ("the kind", api("oven")),
        (
            "the plural",
            Api {
                plural: Some("Ovens".into()),
                ..api("Oven")
            },
        ),
    ] {
        check(project.add_api(&api), field);
    }
    assert!(project.kinds.is_empty());
}

#[test]
fn a_project_file_of_another_format_is_rejected() {
    let text = project().to_text().replace("format: 1", "format: 2");
    let error = Project::parse(&text).unwrap_err().to_string();
    assert!(error.contains("has the format 2"), "{error}");
    let text = project()
        .to_text()
        .replace("language: rust", "language: go");
    let error = Project::parse(&text).unwrap_err().to_string();
    assert_eq!(error, "PROJECT: language: \"go\" is not expected");
}

#[test]
fn a_python_project_has_webhooks_and_versions_and_no_conversion() {
    let mut project = Project {
        language: Language::Python,
        ..project()
    };
    project.add_api(&api("Oven")).unwrap();
    project.add_webhooks("shop", "Oven", BOTH).unwrap();
    project.add_version("shop", "Oven", "v1", true).unwrap();
    check(
        project.check_conversion("shop", "Oven"),
        "kopf serves no conversion webhooks",
    );
    let read = Project::parse(&project.to_text()).unwrap();
    assert_eq!(read, project);
}
