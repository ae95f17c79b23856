//! Is a project in Python valid Python and YAML?

use std::process::Command;

use mizzen_scaffold::{Api, Language, Project};
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
    assert_eq!(n_objects, 10, "{:?}", files.keys());
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
