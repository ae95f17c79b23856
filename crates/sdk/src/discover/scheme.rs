//! Schemes: Rust types by group, version and kind.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::sync::Arc;

use kube::Resource;
use kube::api::ApiResource;
use kube::core::{GroupVersionKind, GroupVersionResource};
use mizzen_value::json;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::convert::{ConvertError, ConvertTo};
use crate::object::Object;

type Read = fn(&[u8]) -> Result<Box<dyn Any + Send>, serde_json::Error>;
type ToHub = fn(&[u8]) -> Result<Box<dyn Any + Send>, SchemeError>;
type FromHub = fn(Box<dyn Any + Send>) -> Result<Vec<u8>, SchemeError>;
type Defaulter = Arc<dyn Fn(&mut dyn Any) + Send + Sync>;

/// Rust types by kind, with their defaults and conversions. A type may have several kinds, a kind
/// has one type.
///
/// ```
/// # use kube::CustomResource;
/// # use mizzen_sdk::convert::Convert;
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// # mod v2 {
/// #   use super::*;
/// #   #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
/// #   #[kube(group = "shop.example.com", version = "v2", kind = "Oven", namespaced)]
/// #   pub struct OvenSpec { pub heat: Option<u32> }
/// # }
/// # mod v1 {
/// #   use super::*;
/// #   #[derive(CustomResource, Convert, Serialize, Deserialize, JsonSchema, Clone, Debug)]
/// #   #[kube(group = "shop.example.com", version = "v1", kind = "Oven", namespaced, derive = "Convert")]
/// #   #[kube(attr = "convert(hub = super::v2::Oven)")]
/// #   #[convert(hub = super::v2::OvenSpec)]
/// #   pub struct OvenSpec { #[convert(rename = "heat")] pub temperature: Option<u32> }
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use mizzen_sdk::Object;
/// use mizzen_sdk::discover::Scheme;
///
/// let mut scheme = Scheme::new();
/// scheme.register_conversion::<v1::Oven, v2::Oven>()?;
/// scheme.register_defaults(|oven: &mut v2::Oven| { oven.spec.heat.get_or_insert(200); })?;
///
/// let oven = Object::parse(br#"{"apiVersion":"shop.example.com/v1","kind":"Oven","metadata":{"name":"big"},"spec":{"temperature":300}}"#)?;
/// let oven = scheme.convert(&oven, "shop.example.com/v2")?;
/// assert_eq!(oven["spec"]["heat"].int(), 300);
///
/// let mut oven = v2::Oven::new("small", v2::OvenSpec { heat: None });
/// scheme.apply_defaults(&mut oven);
/// assert_eq!(oven.spec.heat, Some(200));
///
/// // The conversion webhook of all kinds, and the defaulting webhook of one.
/// use mizzen_sdk::webhook::{Rule, Server, Webhook};
/// let convert = scheme.converter();
/// let defaults = Webhook::defaulting("ovens.shop.example.com", Rule::kind::<v2::Oven>(), move |oven: &mut v2::Oven| {
///     scheme.apply_defaults(oven);
/// });
/// let server = Server::builder("shop").webhook(defaults).conversion("ovens.shop.example.com", convert).build()?;
/// # Ok(()) }
/// ```
#[derive(Default, Clone)]
pub struct Scheme {
    kinds: HashMap<GroupVersionKind, RegisteredKind>,
    types: HashMap<TypeId, Vec<GroupVersionKind>>,
    defaulters: HashMap<TypeId, Vec<Defaulter>>,
}

#[derive(Clone)]
struct RegisteredKind {
    resource: GroupVersionResource,
    type_id: TypeId,
    type_name: &'static str,
    read: Read,
    conversion: Option<HubConversion>,
}

/// How objects of a kind become objects of its hub, and back.
#[derive(Clone)]
struct HubConversion {
    hub: GroupVersionKind,
    to_hub: ToHub,
    from_hub: FromHub,
}

/// Why a type cannot be registered. The scheme is unchanged.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use kube::api::ApiResource;
/// use mizzen_sdk::discover::{RegisterError, Scheme};
///
/// let mut scheme = Scheme::new();
/// scheme.register::<ConfigMap>()?;
/// let configs = ApiResource::erase::<ConfigMap>(&());
/// let error = scheme.register_as::<Secret>(&configs).map(drop).unwrap_err();
/// assert!(matches!(error, RegisterError::DoubleRegistration { .. }));
/// # Ok::<(), RegisterError>(())
/// ```
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
    /// The kind has another hub.
    #[error(
        "kind {:?} in version {:?} is converted through {}, and cannot be through {new}",
        .gvk.kind, .gvk.api_version(), .old
    )]
    AnotherHub {
        /// The kind.
        gvk: GroupVersionKind,
        /// The version of its hub.
        old: String,
        /// The version of the new hub.
        new: String,
    },
}

/// Why an object cannot be decoded.
///
/// ```
/// use mizzen_sdk::discover::{Scheme, SchemeError};
///
/// let error = Scheme::new().read(br#"{"apiVersion":"v1","kind":"Pod"}"#).unwrap_err();
/// assert!(matches!(error, SchemeError::Unknown(_)));
/// ```
#[derive(Debug, thiserror::Error)]
pub enum SchemeError {
    /// No type is registered for its kind.
    #[error("no type is registered for kind {:?} in version {:?}", .0.kind, .0.api_version())]
    Unknown(GroupVersionKind),
    /// It has no kind, or does not decode as its type.
    #[error("cannot read the object: {0}")]
    Read(#[from] serde_json::Error),
    /// No conversion between the versions is registered.
    #[error("no conversion of kind {:?} from {:?} to {to:?} is registered", .from.kind, .from.api_version())]
    NoConversion {
        /// The kind of the object.
        from: GroupVersionKind,
        /// The wanted `apiVersion`.
        to: String,
    },
    /// A conversion failed.
    #[error(transparent)]
    Convert(#[from] ConvertError),
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
                conversion: None,
            },
        );
        Ok(self)
    }

    /// Registers a type, its hub, and the conversion between them. All versions of a kind must have
    /// the same hub.
    pub fn register_conversion<S, H>(&mut self) -> Result<&mut Scheme, RegisterError>
    where
        S: Resource<DynamicType = ()>
            + ConvertTo<H>
            + Serialize
            + DeserializeOwned
            + Send
            + 'static,
        H: Resource<DynamicType = ()>
            + ConvertTo<S>
            + Serialize
            + DeserializeOwned
            + Send
            + 'static,
    {
        self.register::<S>()?.register::<H>()?;
        self.set_conversion::<H, H>()?.set_conversion::<S, H>()
    }

    fn set_conversion<S, H>(&mut self) -> Result<&mut Scheme, RegisterError>
    where
        S: Resource<DynamicType = ()>
            + ConvertTo<H>
            + Serialize
            + DeserializeOwned
            + Send
            + 'static,
        H: Resource<DynamicType = ()> + ConvertTo<S> + Send + 'static,
    {
        let gvk = |resource: ApiResource| {
            GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind)
        };
        let (spoke, hub) = (
            gvk(ApiResource::erase::<S>(&())),
            gvk(ApiResource::erase::<H>(&())),
        );
        let known = self
            .kinds
            .get_mut(&spoke)
            .expect("it was registered before");
        if let Some(conversion) = &known.conversion
            && conversion.hub != hub
        {
            let (old, new) = (conversion.hub.api_version(), hub.api_version());
            return Err(RegisterError::AnotherHub {
                gvk: spoke,
                old,
                new,
            });
        }
        known.conversion = Some(HubConversion {
            hub,
            to_hub: |text| {
                let spoke: S = serde_json::from_slice(text)?;
                Ok(Box::new(ConvertTo::<H>::convert_to(spoke)?))
            },
            from_hub: |hub| {
                let hub = hub
                    .downcast::<H>()
                    .expect("both conversions have the same hub");
                Ok(serde_json::to_vec(&ConvertTo::<S>::convert_to(*hub)?)?)
            },
        });
        Ok(self)
    }

    /// Registers a type and a function that fills in its defaults. Several are called in order.
    pub fn register_defaults<K>(
        &mut self,
        default: impl Fn(&mut K) + Send + Sync + 'static,
    ) -> Result<&mut Scheme, RegisterError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
    {
        self.register::<K>()?;
        let defaulter: Defaulter = Arc::new(move |object| {
            if let Some(object) = object.downcast_mut() {
                default(object);
            }
        });
        self.defaulters
            .entry(TypeId::of::<K>())
            .or_default()
            .push(defaulter);
        Ok(self)
    }

    /// Fills in the defaults of an object.
    pub fn apply_defaults<K: 'static>(&self, object: &mut K) {
        let defaulters = self.defaulters.get(&TypeId::of::<K>());
        defaulters
            .into_iter()
            .flatten()
            .for_each(|default| default(object));
    }

    /// Converts an object to another version of its kind, through the hub.
    pub fn convert(&self, object: &Object, api_version: &str) -> Result<Object, SchemeError> {
        let from = kind_in(object["apiVersion"].str(), object["kind"].str());
        let to = kind_in(api_version, object["kind"].str());
        let conversion = |gvk| {
            self.kinds
                .get(gvk)
                .and_then(|known| known.conversion.as_ref())
        };
        let (Some(source), Some(target)) = (conversion(&from), conversion(&to)) else {
            let to = api_version.into();
            return Err(SchemeError::NoConversion { from, to });
        };
        if source.hub != target.hub {
            let to = api_version.into();
            return Err(SchemeError::NoConversion { from, to });
        }
        let hub = (source.to_hub)(json::to_string(object).as_bytes())?;
        let mut converted: Object = serde_json::from_slice(&(target.from_hub)(hub)?)?;
        converted.set("apiVersion", api_version);
        converted.set("kind", object["kind"].clone());
        Ok(converted)
    }

    /// The handler of a conversion webhook for all kinds that have conversions; see
    /// [`Builder::conversion`](crate::webhook::Builder::conversion).
    #[cfg(feature = "webhook")]
    pub fn converter(
        &self,
    ) -> impl Fn(Object, String) -> std::future::Ready<Result<Object, crate::webhook::Denied>>
    + Clone
    + Send
    + Sync
    + 'static {
        let scheme = self.clone();
        move |object, version| {
            std::future::ready(scheme.convert(&object, &version).map_err(Into::into))
        }
    }

    /// The kinds of a type, in order of registration.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use mizzen_sdk::discover::Scheme;
    ///
    /// let mut scheme = Scheme::new();
    /// scheme.register::<Pod>()?;
    /// assert_eq!(scheme.kinds_of::<Pod>().len(), 1);
    /// # Ok::<(), mizzen_sdk::discover::RegisterError>(())
    /// ```
    pub fn kinds_of<K: 'static>(&self) -> &[GroupVersionKind] {
        self.types
            .get(&TypeId::of::<K>())
            .map_or(&[], Vec::as_slice)
    }

    /// The first kind of a type.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use mizzen_sdk::discover::Scheme;
    ///
    /// let mut scheme = Scheme::new();
    /// scheme.register::<Pod>()?;
    /// assert_eq!(scheme.kind_of::<Pod>().map(|gvk| &*gvk.kind), Some("Pod"));
    /// # Ok::<(), mizzen_sdk::discover::RegisterError>(())
    /// ```
    pub fn kind_of<K: 'static>(&self) -> Option<&GroupVersionKind> {
        self.kinds_of::<K>().first()
    }

    /// Whether a type is registered for a kind.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kube::core::GroupVersionKind;
    /// use mizzen_sdk::discover::Scheme;
    ///
    /// let mut scheme = Scheme::new();
    /// scheme.register::<Pod>()?;
    /// assert!(scheme.recognizes(&GroupVersionKind::gvk("", "v1", "Pod")));
    /// # Ok::<(), mizzen_sdk::discover::RegisterError>(())
    /// ```
    pub fn recognizes(&self, gvk: &GroupVersionKind) -> bool {
        self.kinds.contains_key(gvk)
    }

    /// The resource of a kind.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kube::core::GroupVersionKind;
    /// use mizzen_sdk::discover::Scheme;
    ///
    /// let mut scheme = Scheme::new();
    /// scheme.register::<Pod>()?;
    /// let pods = scheme.resource_of(&GroupVersionKind::gvk("", "v1", "Pod"));
    /// assert_eq!(pods.map(|gvr| &*gvr.resource), Some("pods"));
    /// # Ok::<(), mizzen_sdk::discover::RegisterError>(())
    /// ```
    pub fn resource_of(&self, gvk: &GroupVersionKind) -> Option<&GroupVersionResource> {
        Some(&self.kinds.get(gvk)?.resource)
    }

    /// The Rust name of a kind's type.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kube::core::GroupVersionKind;
    /// use mizzen_sdk::discover::Scheme;
    ///
    /// let mut scheme = Scheme::new();
    /// scheme.register::<Pod>()?;
    /// let type_name = scheme.type_of(&GroupVersionKind::gvk("", "v1", "Pod"));
    /// assert!(type_name.is_some_and(|name| name.ends_with("::Pod")));
    /// # Ok::<(), mizzen_sdk::discover::RegisterError>(())
    /// ```
    pub fn type_of(&self, gvk: &GroupVersionKind) -> Option<&'static str> {
        Some(self.kinds.get(gvk)?.type_name)
    }

    /// Decodes an object as the type of its kind; use `downcast` on the result.
    pub fn read(&self, text: &[u8]) -> Result<Box<dyn Any + Send>, SchemeError> {
        let said: kube::core::TypeMeta = serde_json::from_slice(text)?;
        let gvk = kind_in(&said.api_version, &said.kind);
        match self.kinds.get(&gvk) {
            Some(known) => Ok((known.read)(text)?),
            None => Err(SchemeError::Unknown(gvk)),
        }
    }
}

fn kind_in(api_version: &str, kind: &str) -> GroupVersionKind {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    GroupVersionKind::gvk(group, version, kind)
}
