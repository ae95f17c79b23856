//! Is a project in Python valid Python and YAML?

use std::process::Command;

use mizzen_scaffold::{Api, Language, Project, Webhooks};
use mizzen_value::yaml;

use crate::{Directory, api, project};

fn python_project() -> Project {
    let mut project = Project {
        language: Language::Python,
        ..project()
    };
    project.add_api(&api("Oven")).unwrap();
    let menu = Api {
        is_namespaced: false,
        ..api("Menu")
    };
    project.add_api(&menu).unwrap();
    project.add_version("shop", "Oven", "v1", true).unwrap();
    let webhooks = Webhooks {
        is_defaulting: true,
        is_validating: true,
    };
    project.add_webhooks("shop", "Oven", webhooks).unwrap();
    project
}

#[test]
fn its_manifests_are_yaml() {
    let files = python_project().files();
    let manifests = files.iter().filter(|(path, _)| path.ends_with(".yaml"));
    let mut n_objects = 0;
    for (path, text) in manifests {
        for document in text.split("\n---\n") {
            let object = yaml::read(document.as_bytes());
            let object = object
                .unwrap_or_else(|error| panic!("{path}: {error}"))
                .value;
            assert!(!object["kind"].str().is_empty(), "{path}");
            n_objects += 1;
        }
    }
    assert_eq!(n_objects, 12, "{:?}", files.keys());
}

#[test]
fn its_sources_compile() {
    let directory = Directory::with(&python_project());
    let compile = "import pathlib, sys\n\
                   for path in pathlib.Path(sys.argv[1]).rglob('*.py'): compile(path.read_text(), str(path), 'exec')";
    let mut python = Command::new("python3");
    match python
        .args(["-c", compile])
        .arg(directory.home.path())
        .output()
    {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => eprintln!("SKIPPED: python3: {error}"),
    }
}

#[test]
fn its_definitions_have_all_versions_and_store_one() {
    let files = python_project().files();
    let definition = yaml::read(files["config/crd/ovens.yaml"].as_bytes()).unwrap();
    let versions = definition.value["spec"]["versions"].items();
    let versions = versions.map(|it| (it["name"].str().to_owned(), it["storage"].bool()));
    let versions: Vec<(String, bool)> = versions.collect();
    assert_eq!(versions, [("v1".into(), true), ("v1alpha1".into(), false)]);
}

#[test]
fn its_webhooks_are_imported_only_if_there_are_any() {
    let with = python_project().files();
    let package = with
        .keys()
        .find_map(|path| path.strip_suffix("/__init__.py"));
    let package = package.unwrap();
    let imports = &with[&format!("{package}/__init__.py")];
    for module in ["oven_defaulting", "oven_validating", "webhooks"] {
        assert!(imports.contains(&format!("import {module} ")), "{imports}");
        assert!(
            with.contains_key(&format!("{package}/{module}.py")),
            "{module}"
        );
    }
    assert!(with["pyproject.toml"].contains("cryptography"));
    let mut without = python_project();
    without.kinds[0].webhooks = Webhooks::default();
    let without = without.files();
    assert!(
        !without
            .values()
            .any(|text| text.contains("admissionregistration"))
    );
    assert!(!without.contains_key("config/service.yaml"));
}
