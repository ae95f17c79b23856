//! Which Rust type is an object of?

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;

use kube::Resource;
use kube::api::ApiResource;
use kube::core::{GroupVersionKind, GroupVersionResource};
use serde::de::DeserializeOwned;

type Read = fn(&[u8]) -> Result<Box<dyn Any + Send>, serde_json::Error>;

/// The types that a program knows, by what the API calls them. A type may have several kinds, a kind has one type.
#[derive(Default, Clone)]
pub struct Scheme {
    kinds: HashMap<GroupVersionKind, Known>,
    types: HashMap<TypeId, Vec<GroupVersionKind>>,
}

#[derive(Clone)]
struct Known {
    resource: GroupVersionResource,
    type_id: TypeId,
    type_name: &'static str,
    read: Read,
}

/// Why a type cannot be registered. The scheme is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Another type has the kind.
    #[error(
        "double registration of different types for kind {:?} in version {:?}: old={old}, new={new}",
        .gvk.kind, .gvk.api_version()
    )]
    DoubleRegistration {
        /// The kind.
        gvk: GroupVersionKind,
        /// The type that has it.
        old: &'static str,
        /// The type that was to be registered.
        new: &'static str,
    },
    /// A kind needs a version.
    #[error("version is required on all types: kind {kind:?}, type {type_name}")]
    NoVersion {
        /// The kind.
        kind: String,
        /// The type that was to be registered.
        type_name: &'static str,
    },
}

/// Why an object cannot be read as any type.
#[derive(Debug, thiserror::Error)]
pub enum SchemeError {
    /// No type was registered for what it says it is.
    #[error("no type is registered for kind {:?} in version {:?}", .0.kind, .0.api_version())]
    Unknown(GroupVersionKind),
    /// It does not say what it is, or cannot be read as that.
    #[error("cannot read the object: {0}")]
    Read(#[from] serde_json::Error),
}

impl Scheme {
    /// Knows nothing yet.
    pub fn new() -> Scheme {
        Scheme::default()
    }

    /// Registers a type under its own kind.
    pub fn register<K>(&mut self) -> Result<&mut Scheme, RegisterError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
    {
        self.register_as::<K>(&ApiResource::erase::<K>(&()))
    }

    /// Registers a type under any kind, such as a type that several versions share. The same type under the same
    /// kind again changes nothing; another type under a kind that is taken is refused.
    pub fn register_as<K>(&mut self, resource: &ApiResource) -> Result<&mut Scheme, RegisterError>
    where
        K: DeserializeOwned + Send + 'static,
    {
        let ApiResource {
            group,
            version,
            kind,
            plural,
            ..
        } = resource;
        let (type_id, type_name) = (TypeId::of::<K>(), type_name::<K>());
        if version.is_empty() {
            return Err(RegisterError::NoVersion {
                kind: kind.clone(),
                type_name,
            });
        }
        let gvk = GroupVersionKind::gvk(group, version, kind);
        match self.kinds.get(&gvk) {
            Some(known) if known.type_id == type_id => return Ok(self),
            Some(known) => {
                let (old, new) = (known.type_name, type_name);
                return Err(RegisterError::DoubleRegistration { gvk, old, new });
            }
            None => {}
        }
        let resource = GroupVersionResource::gvr(group, version, plural);
        let read: Read = |text| Ok(Box::new(serde_json::from_slice::<K>(text)?));
        self.types.entry(type_id).or_default().push(gvk.clone());
        self.kinds.insert(
            gvk,
            Known {
                resource,
                type_id,
                type_name,
                read,
            },
        );
        Ok(self)
    }

    /// The kinds of a type, in the order in which they were registered.
    pub fn kinds_of<K: 'static>(&self) -> &[GroupVersionKind] {
        self.types
            .get(&TypeId::of::<K>())
            .map_or(&[], Vec::as_slice)
    }

    /// The kind under which a type was registered first.
    pub fn kind_of<K: 'static>(&self) -> Option<&GroupVersionKind> {
        self.kinds_of::<K>().first()
    }

    /// Whether a kind has a type.
    pub fn recognizes(&self, gvk: &GroupVersionKind) -> bool {
        self.kinds.contains_key(gvk)
    }

    /// The resource of a kind.
    pub fn resource_of(&self, gvk: &GroupVersionKind) -> Option<&GroupVersionResource> {
        Some(&self.kinds.get(gvk)?.resource)
    }

    /// The Rust name of a kind's type.
    pub fn type_of(&self, gvk: &GroupVersionKind) -> Option<&'static str> {
        Some(self.kinds.get(gvk)?.type_name)
    }

    /// Reads an object as the type of what it says it is; take it out with `downcast`.
    pub fn read(&self, text: &[u8]) -> Result<Box<dyn Any + Send>, SchemeError> {
        let said: kube::core::TypeMeta = serde_json::from_slice(text)?;
        let (group, version) = said
            .api_version
            .split_once('/')
            .unwrap_or(("", &said.api_version));
        let gvk = GroupVersionKind::gvk(group, version, &said.kind);
        match self.kinds.get(&gvk) {
            Some(known) => Ok((known.read)(text)?),
            None => Err(SchemeError::Unknown(gvk)),
        }
    }
}
