//! A kind: its names, its schema, and its rules.
//!
//! All code that serves objects uses a [`Kind`], whether it comes from a data file or from a
//! CustomResourceDefinition. What data cannot express is in [`Hooks`].

use std::sync::Arc;

pub use mizzen_value::validation::names::NameRule;

use crate::hooks::{Action, Hooks};
use crate::names::{GroupResource, GroupVersionKind};
use crate::schema::Struct;
use mizzen_value::Str;

/// Whether objects are namespaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResourceScope {
    /// Each object is in a namespace.
    #[default]
    Namespaced,
    /// Objects have no namespace.
    Cluster,
}

/// The data of a kind in one version.
#[derive(Debug, Clone)]
pub struct KindData {
    /// Group, version and kind.
    pub gvk: GroupVersionKind,
    /// The kind of its list; none if it cannot be listed.
    pub list_kind: Option<Str>,
    /// The plural name of the resource.
    pub plural: Str,
    /// The singular name.
    pub singular: Str,
    /// The short names.
    pub short_names: Vec<Str>,
    /// The categories, such as `all`.
    pub categories: Vec<Str>,
    /// Whether objects are namespaced.
    pub scope: ResourceScope,
    /// The verbs, as discovery lists them.
    pub verbs: Vec<Str>,
    /// The subresources.
    pub subresources: Vec<Subresource>,
    /// The reset fields of a write to the main resource, if not just the status.
    pub resets: Option<Vec<Str>>,
    /// The field selectors besides name and namespace.
    pub selectable: Vec<Str>,
    /// The selectable fields with an index.
    pub indexed: Vec<Str>,
    /// Deprecation, if the kind is deprecated.
    pub deprecated: Option<Deprecated>,
    /// A deprecation warning that replaces the generated one.
    pub warning: Option<Str>,
    /// The paths of the scale subresource.
    pub scale: Option<ScalePaths>,
    /// The stored version, if it is not this one.
    pub stored: Option<GroupVersionKind>,
    /// The version in which objects are written to etcd, if it is not this one.
    /// Kubernetes: ResourceEncodingOverrides (kubeapiserver/default_storage_factory_builder.go).
    pub storage_encoding: Option<Str>,
    /// The columns of its table, in order; most start with the name.
    pub columns: Vec<Column>,
    /// Annotations that are hidden from metadata-only responses.
    pub hidden_annotations: Vec<Str>,
    /// The rules of the kind.
    pub rules: KindRules,
    /// The schema of an object.
    pub root: Arc<Struct>,
}

impl KindData {
    /// A kind with only a name and a schema.
    pub fn new(gvk: GroupVersionKind, root: Arc<Struct>) -> KindData {
        KindData {
            gvk,
            list_kind: None,
            plural: Str::default(),
            singular: Str::default(),
            short_names: Vec::new(),
            categories: Vec::new(),
            scope: ResourceScope::default(),
            verbs: Vec::new(),
            subresources: Vec::new(),
            resets: None,
            selectable: Vec::new(),
            indexed: Vec::new(),
            deprecated: None,
            warning: None,
            scale: None,
            stored: None,
            storage_encoding: None,
            columns: Vec::new(),
            hidden_annotations: Vec::new(),
            rules: KindRules::default(),
            root,
        }
    }
}

/// Since when a kind is deprecated, and its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deprecated {
    /// The release that deprecated it.
    pub since: Str,
    /// The release that removed it.
    pub gone: Option<Str>,
    /// The version and kind that replace it.
    pub instead: Str,
}

impl Deprecated {
    /// Parses `1.19 1.22 networking.k8s.io/v1 Ingress`; the second release is optional.
    pub fn parse(text: &str) -> Deprecated {
        let (since, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (second, instead) = rest.split_once(' ').unwrap_or((rest, ""));
        match second.starts_with(|first: char| first.is_ascii_digit()) {
            true => Deprecated {
                since: since.into(),
                gone: Some(second.into()),
                instead: instead.into(),
            },
            false => Deprecated {
                since: since.into(),
                gone: None,
                instead: rest.into(),
            },
        }
    }
}

/// A subresource: `status`, `scale`, `eviction`.
#[derive(Debug, Clone)]
pub struct Subresource {
    /// The name in paths.
    pub name: Str,
    /// The verbs.
    pub verbs: Vec<Str>,
    /// The kind, if it is not the object's.
    pub kind: Option<GroupVersionKind>,
    /// The reset fields of a write through it, if they are not the default ones.
    pub resets: Option<Vec<Str>>,
}

/// The field paths of the scale subresource: `.spec.replicas`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScalePaths {
    /// The path of the desired replicas.
    pub spec_replicas: Str,
    /// The path of the current replicas.
    pub status_replicas: Str,
    /// The path of the label selector, an object or a string; may be empty.
    pub label_selector: Str,
}

/// The differences between kinds that the generic code knows.
#[derive(Debug, Clone, Default)]
pub struct KindRules {
    /// Tables show an object as its stored kind.
    pub shown_as_stored: bool,
    /// `metadata.generation` counts changes of the desired state.
    pub generation: bool,
    /// Annotations are part of the desired state.
    pub counts_annotations: bool,
    /// Labels are part of the desired state.
    pub counts_labels: bool,
    /// The status is part of the desired state.
    pub counts_status: bool,
    /// `metadata.generation` is set and never incremented.
    pub constant_generation: bool,
    /// `metadata.generation` is absent until the first change.
    pub late_generation: bool,
    /// A PUT to a name that does not exist creates the object, also through `/status`.
    pub create_on_update: bool,
    /// An apply to the `/status` of a name that does not exist creates the object.
    pub create_on_status_apply: bool,
    /// An update must have a resource version.
    pub conditional_update: bool,
    /// An object without name and `generateName` gets a random UUID as its name.
    pub named_by_uuid: bool,
    /// A delete returns the object instead of a Status.
    pub delete_answers_object: bool,
    /// The default propagation policy is to orphan dependents.
    pub orphan_by_default: bool,
    /// Garbage collection is not supported: objects are deleted at once, whatever the propagation
    /// policy.
    pub no_garbage_collection: bool,
    /// A delete without a propagation policy gets a warning that dependents are orphaned.
    pub warns_of_orphans: bool,
    /// The status that a client sends on create is kept.
    pub status_on_create: bool,
    /// Labels, annotations, finalizers and owner references do not change through `/status`.
    pub status_keeps_metadata: bool,
    /// Metadata is validated by `meta::object_meta` and `meta::object_meta_update` alone:
    /// finalizers need no domain.
    pub plain_metadata: bool,
    /// Objects have neither protobuf nor strategic merge patch.
    pub loose: bool,
    /// Seconds until an object expires; zero for never.
    pub ttl: Option<u32>,
    /// How names are validated.
    pub name: NameRule,
    /// How the kind's own validation of metadata differs from the default.
    pub meta_checks: MetaChecks,
}

/// The validation of metadata by the kind itself, beside that of every kind; `None` is the default.
#[derive(Debug, Clone, Default)]
pub struct MetaChecks {
    /// On create; by default [`MetaCheck::Whole`].
    pub create: Option<Vec<MetaCheck>>,
    /// On update; by default [`MetaCheck::Change`].
    pub update: Option<Vec<MetaCheck>>,
    /// On an update of the status; by default [`MetaCheck::Change`].
    pub status: Option<Vec<MetaCheck>>,
}

impl MetaChecks {
    /// The validations of an operation, in order. Each reports its violations, even if another has
    /// reported them before.
    pub fn for_action(&self, action: Action) -> &[MetaCheck] {
        let (own, usual) = match action {
            Action::Create => (&self.create, &[MetaCheck::Whole]),
            Action::Update => (&self.update, &[MetaCheck::Change]),
            Action::Status => (&self.status, &[MetaCheck::Change]),
        };
        own.as_deref().unwrap_or(usual)
    }
}

/// A validation of metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaCheck {
    /// Of metadata as it is (ValidateObjectMeta).
    Whole,
    /// Of changes of metadata (ValidateObjectMetaUpdate).
    Change,
}

/// One column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub name: Str,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub ty: Str,
    /// `name` for the name column, otherwise mostly empty.
    pub format: Str,
    /// The priority; 0 is always shown.
    pub priority: i32,
    /// The path of the value; `None` if the kind's hooks compute it.
    pub path: Option<Str>,
    /// The description.
    pub description: Str,
}

impl Column {
    /// Parses `"Created At" date priority=1 at=.metadata.creationTimestamp`.
    pub fn parse(text: &str) -> Result<Column, String> {
        let (name, rest) = match text.strip_prefix('"') {
            Some(quoted) => quoted
                .split_once('"')
                .ok_or("a column's name is not closed")?,
            None => text.split_once(' ').ok_or("a column has a type")?,
        };
        let mut words = rest.split_whitespace();
        let ty = words.next().ok_or("a column has a type")?.into();
        let mut column = Column {
            name: name.into(),
            ty,
            format: Str::default(),
            priority: 0,
            path: None,
            description: Str::default(),
        };
        for word in words {
            match word.split_once('=') {
                Some(("format", value)) => column.format = value.into(),
                Some(("priority", value)) => {
                    column.priority = value.parse().map_err(|_| "priority is a number")?
                }
                Some(("at", value)) => column.path = Some(value.into()),
                _ => return Err(format!("unknown column attribute {word:?}")),
            }
        }
        Ok(column)
    }
}

/// A kind with its hooks.
#[derive(Clone)]
pub struct Kind {
    /// The data of the kind.
    pub data: Arc<KindData>,
    /// The hooks of the kind.
    pub hooks: Arc<dyn Hooks>,
}

impl std::ops::Deref for Kind {
    type Target = KindData;

    fn deref(&self) -> &KindData {
        &self.data
    }
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "Kind({})", self.gvk)
    }
}

impl KindData {
    /// The resource without its version.
    pub fn resource(&self) -> GroupResource {
        GroupResource {
            group: self.gvk.group.clone(),
            resource: self.plural.clone(),
        }
    }

    /// The deprecation warning, if the kind is deprecated.
    pub fn deprecation(&self) -> Option<String> {
        if let Some(warning) = &self.warning {
            return Some(warning.to_string());
        }
        let old = self.deprecated.as_ref()?;
        let (version, kind, since) = (self.gvk.api_version(), &self.gvk.kind, &old.since);
        let mut warning = format!("{version} {kind} is deprecated in v{since}+");
        if let Some(gone) = &old.gone {
            warning += &format!(", unavailable in v{gone}+");
        }
        if !old.instead.is_empty() {
            warning += &format!("; use {}", old.instead);
        }
        Some(warning)
    }

    /// Whether its objects are namespaced.
    pub fn is_namespaced(&self) -> bool {
        self.scope == ResourceScope::Namespaced
    }

    /// The subresource `name`.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources
            .iter()
            .find(|subresource| subresource.name == name)
    }

    /// The reset fields of a write to the object or through a subresource. Kubernetes:
    /// `GetResetFields` of a strategy.
    pub fn resets(&self, subresource: &str) -> Vec<&str> {
        let said = match subresource {
            "" => self.resets.as_ref(),
            name => self
                .subresource(name)
                .and_then(|subresource| subresource.resets.as_ref()),
        };
        match (said, subresource) {
            (Some(fields), _) => fields.iter().map(Str::as_str).collect(),
            (None, "") if self.has_status() => vec!["status"],
            (None, "status") if self.rules.status_keeps_metadata => vec!["spec", "metadata"],
            (None, "status") => vec!["spec"],
            _ => Vec::new(),
        }
    }

    /// Whether it has a status that only `/status` changes.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// The storage key: one for all versions, and for kinds that share their storage.
    pub fn space(&self) -> String {
        let gvk = self.stored.as_ref().unwrap_or(&self.gvk);
        match gvk.group.as_str() {
            "" => self.plural.to_string(),
            group => format!("{group}/{}", self.plural),
        }
    }
}
