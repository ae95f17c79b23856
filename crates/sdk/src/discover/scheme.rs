//! Schemes: Rust types by group, version and kind.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;

use kube::Resource;
use kube::api::ApiResource;
use kube::core::{GroupVersionKind, GroupVersionResource};
use serde::de::DeserializeOwned;

type Read = fn(&[u8]) -> Result<Box<dyn Any + Send>, serde_json::Error>;

/// Rust types by kind. A type may have several kinds, a kind has one type.
#[derive(Default, Clone)]
pub struct Scheme {
    kinds: HashMap<GroupVersionKind, RegisteredKind>,
    types: HashMap<TypeId, Vec<GroupVersionKind>>,
}

#[derive(Clone)]
struct RegisteredKind {
    resource: GroupVersionResource,
    type_id: TypeId,
    type_name: &'static str,
    read: Read,
}

/// Why a type cannot be registered. The scheme is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Another type is registered for the kind.
    #[error(
        "double registration of different types for kind {:?} in version {:?}: old={old}, new={new}",
        .gvk.kind, .gvk.api_version()
    )]
    DoubleRegistration {
        /// The kind.
        gvk: GroupVersionKind,
        /// The registered type.
        old: &'static str,
        /// The new type.
        new: &'static str,
    },
    /// The kind has no version.
    #[error("version is required on all types: kind {kind:?}, type {type_name}")]
    NoVersion {
        /// The kind.
        kind: String,
        /// The new type.
        type_name: &'static str,
    },
}

/// Why an object cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum SchemeError {
    /// No type is registered for its kind.
    #[error("no type is registered for kind {:?} in version {:?}", .0.kind, .0.api_version())]
    Unknown(GroupVersionKind),
    /// It has no kind, or does not decode as its type.
    #[error("cannot read the object: {0}")]
    Read(#[from] serde_json::Error),
}

impl Scheme {
    /// An empty scheme.
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

    /// Registers a type under any kind, such as a type that several versions share. Registering the
    /// same type again changes nothing; another type under a registered kind is an error.
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
            RegisteredKind {
                resource,
                type_id,
                type_name,
                read,
            },
        );
        Ok(self)
    }

    /// The kinds of a type, in order of registration.
    pub fn kinds_of<K: 'static>(&self) -> &[GroupVersionKind] {
        self.types
            .get(&TypeId::of::<K>())
            .map_or(&[], Vec::as_slice)
    }

    /// The first kind of a type.
    pub fn kind_of<K: 'static>(&self) -> Option<&GroupVersionKind> {
        self.kinds_of::<K>().first()
    }

    /// Whether a type is registered for a kind.
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

    /// Decodes an object as the type of its kind; use `downcast` on the result.
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
