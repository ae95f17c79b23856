//! Which files does a project have, and what is in them?

use std::collections::BTreeMap;

use mizzen_value::{Value, value};

use crate::name::snake_case;
use crate::project::{Kind, Language, Project, SdkSource, Webhooks};
use crate::spoke;
use crate::template::render;

/// The files of a project, by path.
pub(crate) type Files = BTreeMap<String, String>;

macro_rules! template {
    ($path:literal) => {
        include_str!(concat!("../templates/", $path, ".tmpl"))
    };
}

/// Files that every project has.
const RUST: [(&str, &str); 16] = [
    (".dockerignore", template!("rust/dockerignore")),
    (".gitignore", template!("rust/gitignore")),
    ("Cargo.toml", template!("rust/Cargo.toml")),
    ("Dockerfile", template!("rust/Dockerfile")),
    ("README.md", template!("rust/README.md")),
    ("src/api/conditions.rs", template!("rust/conditions.rs")),
    ("src/api/mod.rs", template!("rust/api_mod.rs")),
    ("src/bin/manifests.rs", template!("rust/bin_manifests.rs")),
    (
        "src/controllers/mod.rs",
        template!("rust/controllers_mod.rs"),
    ),
    ("src/lib.rs", template!("rust/lib.rs")),
    ("src/main.rs", template!("rust/main.rs")),
    ("src/manifests.rs", template!("rust/manifests.rs")),
    ("src/webhooks/mod.rs", template!("rust/webhooks_mod.rs")),
    (
        "tests/operator/definitions.rs",
        template!("rust/tests_definitions.rs"),
    ),
    (
        "tests/operator/fixtures.rs",
        template!("rust/tests_fixtures.rs"),
    ),
    ("tests/operator/main.rs", template!("rust/tests_main.rs")),
];

/// Files that every project in Python has.
const PYTHON: [(&str, &str); 9] = [
    (".dockerignore", template!("python/dockerignore")),
    (".gitignore", template!("python/gitignore")),
    ("Dockerfile", template!("python/Dockerfile")),
    ("README.md", template!("python/README.md")),
    (
        "config/deployment.yaml",
        template!("python/deployment.yaml"),
    ),
    (
        "config/kustomization.yaml",
        template!("python/kustomization.yaml"),
    ),
    ("config/rbac.yaml", template!("python/rbac.yaml")),
    ("pyproject.toml", template!("python/pyproject.toml")),
    ("tests/conftest.py", template!("python/conftest.py")),
];

impl Project {
    /// All files, by path, without `PROJECT` itself.
    pub fn files(&self) -> BTreeMap<String, String> {
        let context = self.context();
        let of_language: &[(&str, &str)] = match self.language {
            Language::Rust => &RUST,
            Language::Python => &PYTHON,
        };
        let rendered = of_language.iter();
        let rendered = rendered.map(|(path, it)| ((*path).to_owned(), render(it, &context)));
        let mut files: Files = rendered.collect();
        match self.language {
            Language::Rust => self.add_rust_files(&context, &mut files),
            Language::Python => self.add_python_files(&context, &mut files),
        }
        files
    }

    /// The path of the source of a version.
    pub(crate) fn version_path(kind: &Kind, version: &str) -> String {
        format!("src/api/{}/{version}.rs", snake_case(&kind.kind))
    }

    fn add_rust_files(&self, context: &Value, files: &mut Files) {
        if context["has_conversions"].bool() {
            let text = render(template!("rust/tests_conversions.rs"), context);
            files.insert("tests/operator/conversions.rs".into(), text);
        }
        for kind in &self.kinds {
            let (module, context) = (snake_case(&kind.kind), self.kind_context(kind));
            for version in &kind.versions {
                let mut of_version = context.clone();
                of_version.set("version", version.as_str());
                let source = render(template!("rust/version.rs"), &of_version);
                let source = match *version == kind.storage {
                    true => source,
                    false => spoke::add_conversions(&source, &kind.kind, &kind.storage),
                };
                files.insert(Project::version_path(kind, version), source);
                let sample = format!("config/samples/{}_{version}_{module}.yaml", kind.group);
                files.insert(sample, render(template!("sample.yaml"), &of_version));
            }
            let mut add = |path: String, template: &str| {
                files.insert(path, render(template, &context));
            };
            if kind.has_controller {
                add(
                    format!("src/controllers/{module}.rs"),
                    template!("rust/controller.rs"),
                );
                add(
                    format!("tests/operator/{module}.rs"),
                    template!("rust/tests_controller.rs"),
                );
            }
            let webhooks = [
                (
                    kind.webhooks.is_defaulting,
                    "defaulting",
                    template!("rust/defaulting.rs"),
                    template!("rust/tests_defaulting.rs"),
                ),
                (
                    kind.webhooks.is_validating,
                    "validating",
                    template!("rust/validating.rs"),
                    template!("rust/tests_validating.rs"),
                ),
            ];
            for (_, name, source, test) in webhooks.into_iter().filter(|it| it.0) {
                add(format!("src/webhooks/{module}/{name}.rs"), source);
                add(format!("tests/operator/{module}_{name}.rs"), test);
            }
        }
    }

    fn add_python_files(&self, context: &Value, files: &mut Files) {
        let package = context["module_of_project"].str();
        let mut add = |path: String, template: &str, context: &Value| {
            files.insert(path, render(template, context));
        };
        add(
            format!("{package}/__init__.py"),
            template!("python/init.py"),
            context,
        );
        if context["has_admission"].bool() {
            for (path, template) in [
                (
                    format!("{package}/webhooks.py"),
                    template!("python/webhooks.py"),
                ),
                (
                    "config/service.yaml".into(),
                    template!("python/service.yaml"),
                ),
            ] {
                add(path, template, context);
            }
        }
        for kind in &self.kinds {
            let (module, context) = (snake_case(&kind.kind), self.kind_context(kind));
            let plural = &kind.plural;
            add(
                format!("config/crd/{plural}.yaml"),
                template!("python/crd.yaml"),
                &context,
            );
            for version in &kind.versions {
                let mut of_version = context.clone();
                of_version.set("version", version.as_str());
                let sample = format!("config/samples/{}_{version}_{module}.yaml", kind.group);
                add(sample, template!("sample.yaml"), &of_version);
            }
            let parts = [
                (
                    kind.has_controller,
                    module.clone(),
                    template!("python/handlers.py"),
                    template!("python/test.py"),
                ),
                (
                    kind.webhooks.is_defaulting,
                    format!("{module}_defaulting"),
                    template!("python/defaulting.py"),
                    template!("python/test_defaulting.py"),
                ),
                (
                    kind.webhooks.is_validating,
                    format!("{module}_validating"),
                    template!("python/validating.py"),
                    template!("python/test_validating.py"),
                ),
            ];
            for (_, name, source, test) in parts.into_iter().filter(|it| it.0) {
                add(format!("{package}/{name}.py"), source, &context);
                add(format!("tests/test_{name}.py"), test, &context);
            }
        }
    }

    /// What templates may name.
    fn context(&self) -> Value {
        let text = |text: &str| Value::from(text);
        let (sdk_path, sdk_version) = match &self.sdk {
            // The version of a checkout is that of this crate.
            SdkSource::Path(path) => (path.trim_end_matches('/'), env!("CARGO_PKG_VERSION")),
            SdkSource::Version(version) => ("", version.as_str()),
        };
        // Modules are sorted, as rustfmt has them.
        let mut kinds: Vec<&Kind> = self.kinds.iter().collect();
        kinds.sort_by_key(|kind| snake_case(&kind.kind));
        let any = |has: &dyn Fn(&Kind) -> bool| self.kinds.iter().any(has);
        let has_admission = any(&|it| it.webhooks != Webhooks::default());
        let has_conversions = any(&|it| it.versions.len() > 1);
        let has_controllers = any(&|it| it.has_controller);
        let count = |has: &dyn Fn(&Kind) -> bool| {
            let n_kinds = self.kinds.iter().filter(|kind| has(kind)).count();
            Value::from(n_kinds.to_string().as_str())
        };
        let kinds = kinds.into_iter().map(|kind| kind.context(&self.domain));
        value!({
            "name": (text(&self.name)),
            "module_of_project": (text(&self.name.replace('-', "_"))),
            "domain": (text(&self.domain)),
            "is_workspace_member": (self.is_workspace_member),
            "sdk_path": (text(sdk_path)),
            "sdk_version": (text(sdk_version)),
            "has_controllers": has_controllers,
            "has_handlers": (has_controllers || has_admission),
            "has_admission": has_admission,
            "has_conversions": has_conversions,
            "n_defaulting": (count(&|it| it.webhooks.is_defaulting)),
            "n_validating": (count(&|it| it.webhooks.is_validating)),
            "has_webhooks": (has_admission || has_conversions),
            "kinds": (kinds.collect::<Vec<_>>()),
        })
    }

    /// What templates of files of one kind may name.
    fn kind_context(&self, kind: &Kind) -> Value {
        let mut context = self.context();
        let kinds = context["kinds"].clone();
        let mut kinds = kinds.items();
        let of_kind = kinds.find(|it| it["kind"].str() == kind.kind).cloned();
        let of_kind = of_kind.expect("it is a kind of the project");
        for (name, value) in of_kind.entries() {
            context.set(name, value.clone());
        }
        context
    }
}

impl Kind {
    /// What templates may name of a kind.
    fn context(&self, domain: &str) -> Value {
        let text = |text: &str| Value::from(text);
        let module = snake_case(&self.kind);
        let named = |version: &String| {
            let is_stored = *version == self.storage;
            value!({ "version": (text(version)), "is_stored": is_stored })
        };
        let mut sorted = self.versions.clone();
        sorted.sort();
        let mut spokes: Vec<String> = self.spokes().cloned().collect();
        spokes.sort();
        let a_kind = match self.kind.starts_with(['A', 'E', 'I', 'O', 'U']) {
            true => format!("an {}", self.kind),
            false => format!("a {}", self.kind),
        };
        let sample = format!("{}_{}_{module}.yaml", self.group, self.versions[0]);
        let group = format!("{}.{domain}", self.group);
        value!({
            "group": (text(&group)),
            "definition": (text(&format!("{}.{group}", self.plural))),
            "kind": (text(&self.kind)),
            "a_kind": (text(&a_kind)),
            "an_object": (text(&a_kind.to_ascii_lowercase().replace(' ', "_"))),
            "module": (text(&module)),
            "plural": (text(&self.plural)),
            "singular": (text(&self.kind.to_ascii_lowercase())),
            "is_namespaced": (self.is_namespaced),
            "has_controller": (self.has_controller),
            "is_defaulting": (self.webhooks.is_defaulting),
            "is_validating": (self.webhooks.is_validating),
            "is_converted": (self.versions.len() > 1),
            "is_admitted": (self.webhooks != Webhooks::default()),
            "has_tests": (self.has_controller || self.webhooks != Webhooks::default()),
            "hub": (text(&self.storage)),
            "version": (text(&self.storage)),
            "first_version": (text(&self.versions[0])),
            "sample": (text(&sample)),
            "versions": (sorted.iter().map(named).collect::<Vec<_>>()),
            "spokes": (spokes.iter().map(named).collect::<Vec<_>>()),
        })
    }
}
