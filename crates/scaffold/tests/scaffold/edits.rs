//! Does a second run keep edits?

use mizzen_scaffold::{Change, EditPolicy, PlanError, Project};

use crate::{Directory, api, project};

/// A directory with a project of one kind, and that project.
fn with_oven() -> (Directory, Project) {
    let mut project = project();
    project.add_api(&api("Oven")).unwrap();
    (Directory::with(&project), project)
}

#[test]
fn a_second_run_changes_nothing() {
    let (directory, project) = with_oven();
    let before = directory.all();
    let plan = directory.plan(&project);
    assert!(
        plan.files()
            .iter()
            .all(|file| file.change == Change::Unchanged)
    );
    plan.write(EditPolicy::Refuse).unwrap();
    assert_eq!(directory.all(), before);
}

#[test]
fn the_file_of_a_project_is_read_as_it_is_written() {
    let (directory, project) = with_oven();
    assert_eq!(Project::parse(&directory.read("PROJECT")).unwrap(), project);
}

#[test]
fn edits_stay_when_a_kind_is_added() {
    let (directory, mut project) = with_oven();
    directory.edit("src/main.rs", "runs\"", "runs well\"");
    directory.edit("src/controllers/oven.rs", "from_secs(60)", "from_secs(5)");
    let edited = directory.read("src/controllers/oven.rs");
    project.add_api(&api("Rack")).unwrap();
    directory.write(&project).unwrap();
    assert!(directory.read("src/main.rs").contains("runs well"));
    assert_eq!(directory.read("src/controllers/oven.rs"), edited);
    assert!(
        directory
            .read("src/controllers/mod.rs")
            .contains("pub mod rack;")
    );
    assert!(
        directory
            .read("src/controllers/rack.rs")
            .contains("RackReconciler")
    );
}

#[test]
fn nothing_is_written_if_an_edited_file_should_change() {
    let (directory, mut project) = with_oven();
    directory.edit(
        "src/controllers/mod.rs",
        "pub mod oven;",
        "pub mod oven; // mine",
    );
    let before = directory.all();
    project.add_api(&api("Rack")).unwrap();
    let error = directory.write(&project).unwrap_err();
    assert!(matches!(&error, PlanError::Conflict(paths) if paths == &["src/controllers/mod.rs"]));
    let message = error.to_string();
    assert!(
        message.contains("src/controllers/mod.rs was edited and would change"),
        "{message}"
    );
    assert_eq!(directory.all(), before);

    let plan = directory.plan(&project);
    let diff = plan.conflicts()[0].diff();
    for line in ["-pub mod oven; // mine", "+pub mod oven;", "+pub mod rack;"] {
        assert!(diff.lines().any(|it| it == line), "no {line} in {diff}");
    }
}

#[test]
fn edited_files_are_kept_or_overwritten_on_request() {
    let (directory, mut project) = with_oven();
    directory.edit(
        "src/controllers/mod.rs",
        "pub mod oven;",
        "pub mod oven; // mine",
    );
    project.add_api(&api("Rack")).unwrap();
    directory.plan(&project).write(EditPolicy::Keep).unwrap();
    let kept = directory.read("src/controllers/mod.rs");
    assert!(kept.contains("// mine") && !kept.contains("rack"));
    assert!(directory.read("src/api/mod.rs").contains("pub mod rack"));

    // What was kept once is no conflict again.
    directory.write(&project).unwrap();
    directory
        .plan(&project)
        .write(EditPolicy::Overwrite)
        .unwrap();
    let overwritten = directory.read("src/controllers/mod.rs");
    assert!(!overwritten.contains("// mine") && overwritten.contains("rack"));
}

#[test]
fn formatted_files_are_not_edited_ones() {
    let (directory, mut project) = with_oven();
    directory.edit("src/api/mod.rs", "vec![", "vec![\n\n      ");
    project.add_api(&api("Rack")).unwrap();
    directory.write(&project).unwrap();
    assert!(directory.read("src/api/mod.rs").contains("pub mod rack"));
}

#[test]
fn a_deleted_file_stays_deleted_until_it_changes() {
    let (directory, mut project) = with_oven();
    for path in ["README.md", "src/api/mod.rs"] {
        std::fs::remove_file(directory.path(path)).unwrap();
    }
    directory.write(&project).unwrap();
    assert!(!directory.path("README.md").exists());
    project.add_api(&api("Rack")).unwrap();
    directory.write(&project).unwrap();
    assert!(!directory.path("README.md").exists());
    assert!(directory.path("src/api/mod.rs").exists());
}

#[test]
fn files_that_were_there_before_are_not_overwritten() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("README.md"), "# Mine\n").unwrap();
    let directory = Directory { home };
    let error = directory.write(&project()).unwrap_err().to_string();
    assert!(error.contains("README.md was edited"), "{error}");
    assert_eq!(directory.all().len(), 1);
}

#[test]
fn an_interrupted_run_can_be_repeated() {
    let (directory, mut project) = with_oven();
    let state = ["PROJECT", "PROJECT.sum"].map(|path| (path, directory.read(path)));
    project.add_version("shop", "Oven", "v1", true).unwrap();
    directory.write(&project).unwrap();
    let complete = directory.all();
    for (path, text) in state {
        std::fs::write(directory.path(path), text).unwrap();
    }
    directory.write(&project).unwrap();
    assert_eq!(directory.all(), complete);
}

#[test]
fn a_version_begins_with_the_edits_of_the_previous_one() {
    let (directory, mut project) = with_oven();
    let field =
        "    /// In Kelvin.\n    #[serde(default)]\n    pub heat: u32,\n}\n\n/// The observed";
    directory.edit("src/api/oven/v1alpha1.rs", "}\n\n/// The observed", field);
    let hub = directory.read("src/api/oven/v1alpha1.rs");

    project
        .add_version("shop", "Oven", "v1beta1", false)
        .unwrap();
    directory.write(&project).unwrap();
    assert_eq!(directory.read("src/api/oven/v1alpha1.rs"), hub);
    let spoke = directory.read("src/api/oven/v1beta1.rs");
    for line in [
        "    version = \"v1beta1\",",
        "    pub heat: u32,",
        "#[convert(hub = super::v1alpha1::OvenSpec)]",
        "#[convert(hub = super::v1alpha1::OvenStatus)]",
        "#[kube(attr = \"convert(hub = super::v1alpha1::Oven)\")]",
    ] {
        assert!(spoke.lines().any(|it| it == line), "no {line} in {spoke}");
    }

    project.add_version("shop", "Oven", "v1", true).unwrap();
    directory.write(&project).unwrap();
    let new_hub = directory.read("src/api/oven/v1.rs");
    assert_eq!(new_hub, hub.replace("v1alpha1", "v1"));
    for version in ["v1alpha1", "v1beta1"] {
        let spoke = directory.read(&format!("src/api/oven/{version}.rs"));
        assert!(spoke.contains("pub heat: u32,"), "{spoke}");
        assert!(
            spoke.contains("#[convert(hub = super::v1::OvenSpec)]"),
            "{spoke}"
        );
        assert!(!spoke.contains("super::v1alpha1"), "{spoke}");
    }
    let plan = directory.plan(&project);
    let changed = plan
        .files()
        .iter()
        .filter(|file| file.change == Change::Update);
    assert_eq!(changed.count(), 0);
}
