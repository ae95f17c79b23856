//! The file `PROJECT`: what a project consists of, so that a change can add to it.

use mizzen_value::{Value, value, yaml};

use crate::name::{self, NameError};

/// The language of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// A cargo project on `mizzen-sdk`.
    Rust,
    /// A package on kopf.
    Python,
}

impl Language {
    /// Its name in `PROJECT`.
    fn word(self) -> &'static str {
        match self {
            Language::Rust => "rust",
            Language::Python => "python",
        }
    }
}

/// Where a project gets `mizzen-sdk` and `mizzen-testing`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SdkSource {
    /// From the registry, in this version.
    Version(String),
    /// From a checkout in this directory; relative to the project, or absolute.
    Path(String),
}

/// An operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// The name of directory, crate and Deployment.
    pub name: String,
    /// The domain that API groups end with.
    pub domain: String,
    /// The language.
    pub language: Language,
    /// Where the SDK comes from.
    pub sdk: SdkSource,
    /// Whether it is a member of a cargo workspace, and no workspace of its own.
    pub is_workspace_member: bool,
    /// Its kinds, in the order in which they were added.
    pub kinds: Vec<Kind>,
}

/// A kind of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// The first label of its API group.
    pub group: String,
    /// Its name.
    pub kind: String,
    /// The name of its resource.
    pub plural: String,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
    /// Whether the project has a controller of it.
    pub has_controller: bool,
    /// Its versions, in the order in which they were added.
    pub versions: Vec<String>,
    /// The version in which objects are stored. The other versions are converted to it and back: it is the hub.
    pub storage: String,
    /// Its admission webhooks.
    pub webhooks: Webhooks,
}

/// Admission webhooks of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Webhooks {
    /// Whether defaults are filled in.
    pub is_defaulting: bool,
    /// Whether objects are validated.
    pub is_validating: bool,
}

/// A new kind.
#[derive(Debug, Clone, Default)]
pub struct Api {
    /// The first label of its API group.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Its name.
    pub kind: String,
    /// The name of its resource; by default the English plural.
    pub plural: Option<String>,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
    /// Whether the project gets a controller of it.
    pub has_controller: bool,
}

/// Why a change does not fit a project.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// A name cannot be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The kind exists otherwise.
    #[error("{kind} of {group} exists {how}; a kind keeps it")]
    Differs {
        /// The kind.
        kind: String,
        /// Its group.
        group: String,
        /// What differs.
        how: String,
    },
    /// The kind has other versions.
    #[error(
        "{kind} exists with the version {versions}; add another one with `mizzen create version --group {group} \
         --kind {kind} --version {version}`"
    )]
    OtherVersion {
        /// The kind.
        kind: String,
        /// Its group.
        group: String,
        /// The versions that it has.
        versions: String,
        /// The one that it lacks.
        version: String,
    },
    /// There is no such kind.
    #[error("the project has no kind {kind} of the group {group}; it has {kinds}")]
    Unknown {
        /// The kind.
        kind: String,
        /// Its group.
        group: String,
        /// The kinds that there are.
        kinds: String,
    },
    /// A conversion needs two versions.
    #[error(
        "{kind} has one version, {version}, so there is nothing to convert; `mizzen create version --group {group} \
         --kind {kind} --version v2` adds another one, with the conversion"
    )]
    OneVersion {
        /// The kind.
        kind: String,
        /// Its group.
        group: String,
        /// Its version.
        version: String,
    },
    /// The hub would be another existing version, whose conversions are those of a spoke.
    #[error(
        "{version} of {kind} exists, and objects are stored as {storage}; --storage is for new versions. To store existing \
         ones otherwise, move the conversions of its source by hand, and change `storage` in PROJECT"
    )]
    ExistingVersion {
        /// The kind.
        kind: String,
        /// The version.
        version: String,
        /// The storage version.
        storage: String,
    },
    /// kopf has no conversion webhooks.
    #[error(
        "kopf serves no conversion webhooks: all versions of a kind in Python have the same fields, and `mizzen create \
         version` adds one without a webhook"
    )]
    PythonConversion,
}

/// Why a file is no `PROJECT`.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// It is not YAML.
    #[error("PROJECT: {0}")]
    Yaml(#[from] yaml::YamlError),
    /// A newer version of mizzen wrote it.
    #[error("PROJECT has the format {0}, and this version of mizzen knows {FORMAT}")]
    Format(i64),
    /// A field is missing or wrong.
    #[error("PROJECT: {field}: {value} is not expected")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// A name cannot be used.
    #[error("PROJECT: {0}")]
    Name(#[from] NameError),
}

const FORMAT: i64 = 1;

const HEADER: &str = "# What this operator consists of. Written by `mizzen init` and `mizzen create`, which read it again.\n";

impl Project {
    /// The name of the file.
    pub const FILE: &str = "PROJECT";

    /// A project without kinds.
    pub fn new(
        name: &str,
        domain: &str,
        language: Language,
        sdk: SdkSource,
    ) -> Result<Project, NameError> {
        name::check_project(name)?;
        name::check_domain(domain)?;
        Ok(Project {
            name: name.to_owned(),
            domain: domain.to_owned(),
            language,
            sdk,
            is_workspace_member: false,
            kinds: Vec::new(),
        })
    }

    /// Adds a kind. One that exists already is left as it is, or gets a controller.
    pub fn add_api(&mut self, api: &Api) -> Result<(), ChangeError> {
        name::check_group(&api.group, &self.domain)?;
        name::check_version(&api.version)?;
        name::check_kind(&api.kind)?;
        let plural = api
            .plural
            .clone()
            .unwrap_or_else(|| name::plural(&api.kind));
        name::check_plural(&plural)?;
        let module = name::snake_case(&api.kind);
        let is_same = |kind: &&mut Kind| name::snake_case(&kind.kind) == module;
        let Some(existing) = self.kinds.iter_mut().find(is_same) else {
            self.kinds.push(Kind {
                group: api.group.clone(),
                kind: api.kind.clone(),
                plural,
                is_namespaced: api.is_namespaced,
                has_controller: api.has_controller,
                versions: vec![api.version.clone()],
                storage: api.version.clone(),
                webhooks: Webhooks::default(),
            });
            return Ok(());
        };
        let differs = |how: String| ChangeError::Differs {
            kind: existing.kind.clone(),
            group: existing.group.clone(),
            how,
        };
        if (&existing.group, &existing.kind) != (&api.group, &api.kind) {
            return Err(differs("and would have the same modules".into()));
        }
        if existing.is_namespaced != api.is_namespaced {
            let scope = if existing.is_namespaced {
                "with"
            } else {
                "without"
            };
            return Err(differs(format!("{scope} --namespaced")));
        }
        if existing.plural != plural {
            return Err(differs(format!("with --plural {}", existing.plural)));
        }
        if !existing.versions.contains(&api.version) {
            return Err(ChangeError::OtherVersion {
                kind: api.kind.clone(),
                group: api.group.clone(),
                versions: existing.versions.join(", "),
                version: api.version.clone(),
            });
        }
        existing.has_controller |= api.has_controller;
        Ok(())
    }

    /// Adds admission webhooks to a kind.
    pub fn add_webhooks(
        &mut self,
        group: &str,
        kind: &str,
        webhooks: Webhooks,
    ) -> Result<(), ChangeError> {
        let kind = self.kind_mut(group, kind)?;
        kind.webhooks.is_defaulting |= webhooks.is_defaulting;
        kind.webhooks.is_validating |= webhooks.is_validating;
        Ok(())
    }

    /// Checks that a kind has a conversion, which every kind with several versions has.
    pub fn check_conversion(&mut self, group: &str, kind: &str) -> Result<(), ChangeError> {
        if self.language == Language::Python {
            return Err(ChangeError::PythonConversion);
        }
        let kind = self.kind_mut(group, kind)?;
        match &kind.versions[..] {
            [version] => Err(ChangeError::OneVersion {
                kind: kind.kind.clone(),
                group: kind.group.clone(),
                version: version.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Adds a version to a kind; with `is_stored` objects are stored in it, and it is the hub.
    pub fn add_version(
        &mut self,
        group: &str,
        kind: &str,
        version: &str,
        is_stored: bool,
    ) -> Result<(), ChangeError> {
        name::check_version(version)?;
        let kind = self.kind_mut(group, kind)?;
        if kind.versions.iter().any(|existing| existing == version) {
            return match is_stored && kind.storage != version {
                true => Err(ChangeError::ExistingVersion {
                    kind: kind.kind.clone(),
                    version: version.to_owned(),
                    storage: kind.storage.clone(),
                }),
                false => Ok(()),
            };
        }
        kind.versions.push(version.to_owned());
        if is_stored {
            kind.storage = version.to_owned();
        }
        Ok(())
    }

    fn kind_mut(&mut self, group: &str, kind: &str) -> Result<&mut Kind, ChangeError> {
        let kinds = self
            .kinds
            .iter()
            .map(|it| format!("{} of {}", it.kind, it.group));
        let kinds: Vec<String> = kinds.collect();
        let mut found = self.kinds.iter_mut();
        let found = found.find(|it| it.group == group && it.kind == kind);
        found.ok_or_else(|| ChangeError::Unknown {
            kind: kind.to_owned(),
            group: group.to_owned(),
            kinds: match kinds.is_empty() {
                true => "none: `mizzen create api` adds one".into(),
                false => kinds.join(", "),
            },
        })
    }

    /// Reads the file.
    pub fn parse(text: &str) -> Result<Project, ParseError> {
        let document = yaml::read(text.as_bytes())?.value;
        let format = document["format"].int();
        if format != FORMAT {
            return Err(ParseError::Format(format));
        }
        let language = match document["language"].str() {
            "rust" => Language::Rust,
            "python" => Language::Python,
            other => return Err(unexpected("language", other)),
        };
        let sdk = &document["sdk"];
        let sdk = match (sdk["path"].as_str(), sdk["version"].as_str()) {
            (Some(path), None) => SdkSource::Path(path.to_owned()),
            (None, Some(version)) => SdkSource::Version(version.to_owned()),
            _ => return Err(unexpected("sdk", "")),
        };
        let (name, domain) = (document["name"].str(), document["domain"].str());
        let mut project = Project::new(name, domain, language, sdk)?;
        project.is_workspace_member = document["workspaceMember"].bool();
        for kind in document["kinds"].items() {
            project.kinds.push(Kind::from_value(kind, domain)?);
        }
        Ok(project)
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        let sdk = match &self.sdk {
            SdkSource::Version(version) => value!({ "version": (version.as_str()) }),
            SdkSource::Path(path) => value!({ "path": (path.as_str()) }),
        };
        let kinds: Vec<Value> = self.kinds.iter().map(Kind::to_value).collect();
        let document = value!({
            "domain": (self.domain.as_str()),
            "format": FORMAT,
            "kinds": kinds,
            "language": (self.language.word()),
            "name": (self.name.as_str()),
            "sdk": sdk,
            "workspaceMember": (self.is_workspace_member),
        });
        format!("{HEADER}{}", yaml::write(&document))
    }
}

fn unexpected(field: &'static str, value: &str) -> ParseError {
    ParseError::Field {
        field,
        value: format!("{value:?}"),
    }
}

impl Kind {
    /// The versions that are converted to the hub.
    pub fn spokes(&self) -> impl Iterator<Item = &String> {
        self.versions
            .iter()
            .filter(|version| **version != self.storage)
    }

    fn from_value(value: &Value, domain: &str) -> Result<Kind, ParseError> {
        let text = |field: &str| value[field].str().to_owned();
        let versions = value["versions"]
            .items()
            .map(|version| version.str().to_owned());
        let kind = Kind {
            group: text("group"),
            kind: text("kind"),
            plural: text("plural"),
            is_namespaced: value["namespaced"].bool(),
            has_controller: value["controller"].bool(),
            versions: versions.collect(),
            storage: text("storage"),
            webhooks: Webhooks {
                is_defaulting: value["defaulting"].bool(),
                is_validating: value["validating"].bool(),
            },
        };
        name::check_group(&kind.group, domain)?;
        name::check_kind(&kind.kind)?;
        name::check_plural(&kind.plural)?;
        for version in &kind.versions {
            name::check_version(version)?;
        }
        match kind.versions.contains(&kind.storage) {
            true => Ok(kind),
            false => Err(unexpected("storage", &kind.storage)),
        }
    }

    fn to_value(&self) -> Value {
        let versions = self
            .versions
            .iter()
            .map(|version| Value::from(version.as_str()));
        let versions: Vec<Value> = versions.collect();
        value!({
            "controller": (self.has_controller),
            "defaulting": (self.webhooks.is_defaulting),
            "group": (self.group.as_str()),
            "kind": (self.kind.as_str()),
            "namespaced": (self.is_namespaced),
            "plural": (self.plural.as_str()),
            "storage": (self.storage.as_str()),
            "validating": (self.webhooks.is_validating),
            "versions": versions,
        })
    }
}
