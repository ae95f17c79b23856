//! Which Rust type is an object of?

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;

use kube::Resource;
use kube::core::{GroupVersionKind, GroupVersionResource};
use serde::de::DeserializeOwned;

type Read = fn(&[u8]) -> Result<Box<dyn Any + Send>, serde_json::Error>;

/// The types that a program knows, by what the API calls them.
#[derive(Default, Clone)]
pub struct Scheme {
    kinds: HashMap<GroupVersionKind, Known>,
    types: HashMap<TypeId, GroupVersionKind>,
}

#[derive(Clone)]
struct Known {
    resource: GroupVersionResource,
    type_name: &'static str,
    read: Read,
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

    /// Registers a type.
    pub fn register<K>(&mut self) -> &mut Scheme
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
    {
        let gvk = GroupVersionKind::gvk(&K::group(&()), &K::version(&()), &K::kind(&()));
        let resource = GroupVersionResource::gvr(&K::group(&()), &K::version(&()), &K::plural(&()));
        let read: Read = |text| Ok(Box::new(serde_json::from_slice::<K>(text)?));
        self.types.insert(TypeId::of::<K>(), gvk.clone());
        self.kinds.insert(gvk, Known { resource, type_name: type_name::<K>(), read });
        self
    }

    /// What the API calls a type.
    pub fn kind_of<K: 'static>(&self) -> Option<&GroupVersionKind> {
        self.types.get(&TypeId::of::<K>())
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
        let (group, version) = said.api_version.split_once('/').unwrap_or(("", &said.api_version));
        let gvk = GroupVersionKind::gvk(group, version, &said.kind);
        match self.kinds.get(&gvk) {
            Some(known) => Ok((known.read)(text)?),
            None => Err(SchemeError::Unknown(gvk)),
        }
    }
}
