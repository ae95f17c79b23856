//! A kind: its names, its schema, and the rules of its life.
//!
//! Everything that serves objects asks a [`Kind`]; whether it came from a data file or from a custom
//! resource definition is not to be seen. What data cannot say is in [`Hooks`].

use std::sync::Arc;

pub use mizzen_value::validation::names::NameRule;

use crate::hooks::{Action, Hooks};
use crate::names::{GroupResource, GroupVersionKind};
use crate::schema::Struct;
use mizzen_value::Str;

/// Whether objects live in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// Each object is in a namespace.
    #[default]
    Namespaced,
    /// Objects stand alone.
    Cluster,
}

/// What data says about a kind in one version.
#[derive(Debug, Clone)]
pub struct KindData {
    /// Group, version and name.
    pub gvk: GroupVersionKind,
    /// The name of a list of them; none if they cannot be listed.
    pub list_kind: Option<Str>,
    /// The resource's name in paths.
    pub plural: Str,
    /// Its name for one.
    pub singular: Str,
    /// Abbreviations.
    pub short_names: Vec<Str>,
    /// Groups of resources it belongs to, such as `all`.
    pub categories: Vec<Str>,
    /// Whether objects live in a namespace.
    pub scope: Scope,
    /// What can be done with it, as discovery says.
    pub verbs: Vec<Str>,
    /// What can be asked for below an object.
    pub subresources: Vec<Subresource>,
    /// The fields that a write to the object itself cannot change, if they are others than its status.
    pub resets: Option<Vec<Str>>,
    /// The fields by which lists can be filtered, besides name and namespace.
    pub selectable: Vec<Str>,
    /// The selectable fields by which objects are found without looking at all of them.
    pub indexed: Vec<Str>,
    /// That the kind is old, if it is.
    pub deprecated: Option<Deprecated>,
    /// What users of an old version are told, in its author's words instead of ours.
    pub warning: Option<Str>,
    /// Where objects keep what their `/scale` shows.
    pub scale: Option<ScalePaths>,
    /// The version in which objects are kept, if it is not this one.
    pub stored: Option<GroupVersionKind>,
    /// The columns of its table, in their order; most begin with the name, some do not.
    pub columns: Vec<Column>,
    /// Annotations that are not shown where only metadata is.
    pub unseen: Vec<Str>,
    /// The rules of its life.
    pub rules: Rules,
    /// The shape of an object.
    pub root: Arc<Struct>,
}

impl KindData {
    /// A kind of which only name and shape are known yet.
    pub fn new(gvk: GroupVersionKind, root: Arc<Struct>) -> KindData {
        KindData {
            gvk,
            list_kind: None,
            plural: Str::default(),
            singular: Str::default(),
            short_names: Vec::new(),
            categories: Vec::new(),
            scope: Scope::default(),
            verbs: Vec::new(),
            subresources: Vec::new(),
            resets: None,
            selectable: Vec::new(),
            indexed: Vec::new(),
            deprecated: None,
            warning: None,
            scale: None,
            stored: None,
            columns: Vec::new(),
            unseen: Vec::new(),
            rules: Rules::default(),
            root,
        }
    }
}

/// Since when a kind is old, and what to use instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deprecated {
    /// The release since which it is.
    pub since: Str,
    /// The release that does not have it any more.
    pub gone: Option<Str>,
    /// Version and kind to use instead.
    pub instead: Str,
}

impl Deprecated {
    /// Reads `1.19 1.22 networking.k8s.io/v1 Ingress`; the second release may be left out.
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

/// Something below an object: `status`, `scale`, `eviction`.
#[derive(Debug, Clone)]
pub struct Subresource {
    /// Its name in paths.
    pub name: Str,
    /// What can be done with it.
    pub verbs: Vec<Str>,
    /// Its kind, if it is not the object's own.
    pub kind: Option<GroupVersionKind>,
    /// The fields that a write through it cannot change, if they are others than usual.
    pub resets: Option<Vec<Str>>,
}

/// Where an object keeps what its `/scale` shows, as paths of fields: `.spec.replicas`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScalePaths {
    /// How many are wanted.
    pub spec_replicas: Str,
    /// How many there are.
    pub status_replicas: Str,
    /// Which ones: a selector, or one in text form; may be empty.
    pub label_selector: Str,
}

/// How kinds differ where the machine is the same.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Tables show an object as the kind that it is stored as.
    pub shown_as_stored: bool,
    /// `metadata.generation` counts changes of what the user wants.
    pub generation: bool,
    /// Annotations count as a change of what the user wants.
    pub counts_annotations: bool,
    /// Labels count as a change of what the user wants.
    pub counts_labels: bool,
    /// The status counts as a change of what the user wants.
    pub counts_status: bool,
    /// `metadata.generation` is set and then never counted.
    pub constant_generation: bool,
    /// `metadata.generation` is absent until the first change.
    pub late_generation: bool,
    /// A PUT to a name that does not exist creates it, through `/status` as well.
    pub create_on_update: bool,
    /// An apply to the `/status` of a name that does not exist creates it.
    pub create_on_status_apply: bool,
    /// An update must say which version it changes.
    pub conditional_update: bool,
    /// An object that has neither a name nor a prefix of one is named by a random UUID.
    pub named_by_uuid: bool,
    /// A delete answers the object instead of a Status.
    pub delete_answers_object: bool,
    /// Dependents are orphaned unless the caller says otherwise.
    pub orphan_by_default: bool,
    /// Garbage collection is not supported: objects go at once, whatever the caller says of dependents.
    pub no_garbage_collection: bool,
    /// Who deletes and does not say what becomes of dependents is told that they stay.
    pub warns_of_orphans: bool,
    /// The status that a client sends on create is kept.
    pub status_on_create: bool,
    /// Labels, annotations, finalizers and owners do not change through `/status`.
    pub status_keeps_metadata: bool,
    /// Metadata is judged by `meta::object_meta` and `meta::object_meta_update` alone: finalizers need no domain.
    pub plain_metadata: bool,
    /// Objects have no protobuf, and strategic merge does not know them.
    pub loose: bool,
    /// Seconds after which an object is gone; zero for never.
    pub ttl: Option<u32>,
    /// What a name may look like.
    pub name: NameRule,
    /// How the kind's own validation of metadata differs from the usual.
    pub meta_checks: MetaChecks,
}

/// How a kind's own validation judges metadata, beside the checks that every kind has; none where it is the usual way.
#[derive(Debug, Clone, Default)]
pub struct MetaChecks {
    /// On create; usually [`MetaCheck::Whole`].
    pub create: Option<Vec<MetaCheck>>,
    /// On update; usually [`MetaCheck::Change`].
    pub update: Option<Vec<MetaCheck>>,
    /// On an update of the status; usually [`MetaCheck::Change`].
    pub status: Option<Vec<MetaCheck>>,
}

impl MetaChecks {
    /// The checks of an action, in their order. Each reports what it finds, though another has found it before.
    pub fn of(&self, action: Action) -> &[MetaCheck] {
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
    /// Of what may not change in it (ValidateObjectMetaUpdate).
    Change,
}

/// One column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub name: Str,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub ty: Str,
    /// `name` for the name column, otherwise mostly empty.
    pub format: Str,
    /// 0 for what is always shown.
    pub priority: i32,
    /// The path of the value; none if the kind's hooks compute it.
    pub path: Option<Str>,
    /// What it means.
    pub description: Str,
}

impl Column {
    /// Reads `"Created At" date priority=1 at=.metadata.creationTimestamp`.
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

/// A kind that is being served.
#[derive(Clone)]
pub struct Kind {
    /// What data says.
    pub data: Arc<KindData>,
    /// What data cannot say.
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

    /// What users of an old kind are told.
    pub fn deprecation(&self) -> Option<String> {
        if let Some(warning) = &self.warning {
            return Some(warning.to_string());
        }
        let old = self.deprecated.as_ref()?;
        let (version, kind, since) = (self.gvk.api_version(), &self.gvk.kind, &old.since);
        let mut told = format!("{version} {kind} is deprecated in v{since}+");
        if let Some(gone) = &old.gone {
            told += &format!(", unavailable in v{gone}+");
        }
        if !old.instead.is_empty() {
            told += &format!("; use {}", old.instead);
        }
        Some(told)
    }

    /// Whether its objects live in a namespace.
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// The subresource `name`.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources
            .iter()
            .find(|subresource| subresource.name == name)
    }

    /// The fields that the server takes back of a write to the object or through a subresource.
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

    /// Whether it has a status of its own, which only `/status` changes.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Where its objects are kept: one place for all versions, and for kinds that share their storage.
    pub fn space(&self) -> String {
        let gvk = self.stored.as_ref().unwrap_or(&self.gvk);
        match gvk.group.as_str() {
            "" => self.plural.to_string(),
            group => format!("{group}/{}", self.plural),
        }
    }
}
