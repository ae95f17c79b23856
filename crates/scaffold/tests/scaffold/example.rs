//! `examples/shop-operator` is what `init` and `create` make: its own tests show that it builds and works.

use std::path::Path;

use mizzen_scaffold::{Api, EditPolicy, Plan, Project, SdkSource, Webhooks};

use crate::{Directory, api, project, root};

/// A kind of each shape: with webhooks and conversion; cluster-scoped; without a controller.
fn example() -> Project {
    let mut project = project();
    project.sdk = SdkSource::Path("../..".into());
    project.is_workspace_member = true;
    project.add_api(&api("Oven")).unwrap();
    let webhooks = Webhooks {
        is_defaulting: true,
        is_validating: true,
    };
    project.add_webhooks("shop", "Oven", webhooks).unwrap();
    project.add_version("shop", "Oven", "v1", true).unwrap();
    let cluster_scoped = |kind: &str, has_controller: bool| Api {
        is_namespaced: false,
        has_controller,
        ..api(kind)
    };
    project.add_api(&cluster_scoped("Menu", true)).unwrap();
    project.add_api(&cluster_scoped("Recipe", false)).unwrap();
    project
}

#[test]
fn the_example_is_what_is_generated_today() {
    let committed = root().join("examples/shop-operator");
    let project = example();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let plan = Plan::new(&committed, &project).unwrap();
        plan.write(EditPolicy::Overwrite).unwrap();
    }
    let generated = Directory::with(&project);
    for (path, text) in generated.all() {
        let path = path.strip_prefix(generated.home.path()).unwrap();
        let present = std::fs::read_to_string(committed.join(path)).unwrap_or_default();
        let hint = "UPDATE_EXPECT=1 writes it";
        assert_eq!(
            present,
            text,
            "{}: {hint}",
            Path::new("examples/shop-operator").join(path).display()
        );
    }
}

#[test]
fn a_project_that_grew_step_by_step_equals_one_that_was_made_at_once() {
    let whole = example();
    let mut project = Project {
        kinds: Vec::new(),
        ..whole.clone()
    };
    let directory = Directory::with(&project);
    for step in 0..5 {
        let cluster_scoped = |kind: &str, has_controller| Api {
            is_namespaced: false,
            has_controller,
            ..api(kind)
        };
        let webhooks = Webhooks {
            is_defaulting: true,
            is_validating: true,
        };
        let outcome = match step {
            0 => project.add_api(&api("Oven")),
            1 => project.add_webhooks("shop", "Oven", webhooks),
            2 => project.add_version("shop", "Oven", "v1", true),
            3 => project.add_api(&cluster_scoped("Menu", true)),
            _ => project.add_api(&cluster_scoped("Recipe", false)),
        };
        outcome.unwrap();
        directory.write(&project).unwrap();
    }
    let texts = |directory: &Directory| -> Vec<(std::path::PathBuf, String)> {
        let files = directory.all().into_iter();
        let home = directory.home.path();
        files
            .map(|(path, text)| (path.strip_prefix(home).unwrap().to_owned(), text))
            .collect()
    };
    assert_eq!(texts(&directory), texts(&Directory::with(&whole)));
}
