//! Owner references and finalizers.
//!
//! ```
//! use k8s_openapi::api::core::v1::{ConfigMap, Pod};
//! use mizzen_sdk::owner;
//!
//! let mut config = ConfigMap::default();
//! config.metadata.name = Some("web".into());
//! config.metadata.uid = Some("7f3c".into()); // as the server gave it
//! let mut pod = Pod::default();
//! owner::set_controller(&config, &(), &mut pod)?;
//! assert!(owner::is_controlled_by(&pod, &config));
//! assert!(owner::add_finalizer(&mut pod, "example.com/clean-up"));
//! # Ok::<(), owner::OwnError>(())
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

/// Why an object cannot be owned.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use mizzen_sdk::owner::{OwnError, set_controller};
///
/// let unstored = ConfigMap::default();
/// assert_eq!(set_controller(&unstored, &(), &mut Pod::default()), Err(OwnError::Unstored));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnError {
    /// Another controller owns it already.
    #[error("{object} is controlled by {kind} {owner} already")]
    Controlled {
        /// The object.
        object: String,
        /// The kind of its controller.
        kind: String,
        /// The name of its controller.
        owner: String,
    },
    /// An owner must be in the same namespace, or cluster-scoped.
    #[error(
        "{object} in namespace {namespace:?} cannot be owned from namespace {owner_namespace:?}"
    )]
    Namespace {
        /// The object.
        object: String,
        /// Its namespace.
        namespace: String,
        /// The owner's namespace.
        owner_namespace: String,
    },
    /// The owner has no UID yet.
    #[error("the owner has no uid; store it first")]
    Unstored,
}

/// The owner reference to an owner.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use mizzen_sdk::owner;
///
/// let mut config = ConfigMap::default();
/// config.metadata.name = Some("web".into());
/// config.metadata.uid = Some("7f3c".into()); // as the server gave it
/// let reference = owner::owner_reference(&config, &())?;
/// assert_eq!((&*reference.kind, &*reference.uid), ("ConfigMap", "7f3c"));
/// assert_eq!(reference.controller, None);
/// # Ok::<(), owner::OwnError>(())
/// ```
pub fn owner_reference<O: Resource>(
    owner: &O,
    kind: &O::DynamicType,
) -> Result<OwnerReference, OwnError> {
    owner.owner_ref(kind).ok_or(OwnError::Unstored)
}

/// Makes `owner` the controller of `object`.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use mizzen_sdk::owner;
///
/// let mut config = ConfigMap::default();
/// config.metadata.name = Some("web".into());
/// config.metadata.uid = Some("7f3c".into()); // as the server gave it
/// let mut pod = Pod::default();
/// owner::set_controller(&config, &(), &mut pod)?;
/// let mut rival = config.clone();
/// rival.metadata.uid = Some("8a4d".into());
/// assert!(owner::set_controller(&rival, &(), &mut pod).is_err()); // there is one controller
/// # Ok::<(), owner::OwnError>(())
/// ```
pub fn set_controller<O: Resource, K: Resource>(
    owner: &O,
    kind: &O::DynamicType,
    object: &mut K,
) -> Result<(), OwnError> {
    let reference = owner.controller_owner_ref(kind).ok_or(OwnError::Unstored)?;
    check_namespaces(owner, object)?;
    if let Some(other) = controller_of(object).filter(|other| other.uid != reference.uid) {
        let (kind, owner) = (other.kind.clone(), other.name.clone());
        return Err(OwnError::Controlled {
            object: name(object),
            kind,
            owner,
        });
    }
    let references = object.meta_mut().owner_references.get_or_insert_default();
    match references
        .iter_mut()
        .find(|known| known.uid == reference.uid)
    {
        Some(known) => {
            *known = OwnerReference {
                block_owner_deletion: Some(true),
                ..reference
            }
        }
        None => references.push(OwnerReference {
            block_owner_deletion: Some(true),
            ..reference
        }),
    }
    Ok(())
}

fn check_namespaces<O: Resource, K: Resource>(owner: &O, object: &K) -> Result<(), OwnError> {
    let namespace = |meta: &kube::api::ObjectMeta| meta.namespace.clone().unwrap_or_default();
    let (theirs, own) = (namespace(owner.meta()), namespace(object.meta()));
    if theirs.is_empty() || theirs == own {
        return Ok(());
    }
    Err(OwnError::Namespace {
        object: name(object),
        namespace: own,
        owner_namespace: theirs,
    })
}

/// The owner reference of an object's controller.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use mizzen_sdk::owner;
///
/// let mut config = ConfigMap::default();
/// config.metadata.name = Some("web".into());
/// config.metadata.uid = Some("7f3c".into()); // as the server gave it
/// let mut pod = Pod::default();
/// assert!(owner::controller_of(&pod).is_none());
/// owner::set_controller(&config, &(), &mut pod)?;
/// assert_eq!(owner::controller_of(&pod).map(|owner| &*owner.name), Some("web"));
/// # Ok::<(), owner::OwnError>(())
/// ```
pub fn controller_of<K: Resource>(object: &K) -> Option<&OwnerReference> {
    object
        .meta()
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// Whether `owner` controls `object`.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use mizzen_sdk::owner;
///
/// let mut config = ConfigMap::default();
/// config.metadata.name = Some("web".into());
/// config.metadata.uid = Some("7f3c".into()); // as the server gave it
/// let mut pod = Pod::default();
/// assert!(!owner::is_controlled_by(&pod, &config));
/// owner::set_controller(&config, &(), &mut pod)?;
/// assert!(owner::is_controlled_by(&pod, &config));
/// # Ok::<(), owner::OwnError>(())
/// ```
pub fn is_controlled_by<O: Resource, K: Resource>(object: &K, owner: &O) -> bool {
    controller_of(object).is_some_and(|reference| Some(&reference.uid) == owner.meta().uid.as_ref())
}

/// Removes an owner reference; true if it existed.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use mizzen_sdk::owner;
///
/// let mut config = ConfigMap::default();
/// config.metadata.name = Some("web".into());
/// config.metadata.uid = Some("7f3c".into()); // as the server gave it
/// let mut pod = Pod::default();
/// owner::set_controller(&config, &(), &mut pod)?;
/// assert!(owner::remove_owner(&config, &mut pod));
/// assert!(!owner::remove_owner(&config, &mut pod));
/// # Ok::<(), owner::OwnError>(())
/// ```
pub fn remove_owner<O: Resource, K: Resource>(owner: &O, object: &mut K) -> bool {
    let uid = owner.meta().uid.clone().unwrap_or_default();
    let Some(references) = &mut object.meta_mut().owner_references else {
        return false;
    };
    let before = references.len();
    references.retain(|reference| reference.uid != uid);
    references.len() != before
}

/// Whether an object is terminating.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
/// use k8s_openapi::jiff::Timestamp;
/// use mizzen_sdk::owner;
///
/// let mut pod = Pod::default();
/// assert!(!owner::is_terminating(&pod));
/// pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
/// assert!(owner::is_terminating(&pod));
/// ```
pub fn is_terminating<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Whether an object has a finalizer.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_sdk::owner;
///
/// let mut pod = Pod::default();
/// owner::add_finalizer(&mut pod, "example.com/clean-up");
/// assert!(owner::has_finalizer(&pod, "example.com/clean-up"));
/// assert!(!owner::has_finalizer(&pod, "example.com/other"));
/// ```
pub fn has_finalizer<K: Resource>(object: &K, finalizer: &str) -> bool {
    object
        .meta()
        .finalizers
        .iter()
        .flatten()
        .any(|known| known == finalizer)
}

/// Adds a finalizer; true if it is new.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_sdk::owner;
///
/// let mut pod = Pod::default();
/// owner::add_finalizer(&mut pod, "example.com/clean-up");
/// assert!(!owner::add_finalizer(&mut pod, "example.com/clean-up")); // it has it
/// assert!(owner::add_finalizer(&mut pod, "example.com/other"));
/// ```
pub fn add_finalizer<K: Resource>(object: &mut K, finalizer: &str) -> bool {
    let missing = !has_finalizer(object, finalizer);
    if missing {
        object
            .meta_mut()
            .finalizers
            .get_or_insert_default()
            .push(finalizer.into());
    }
    missing
}

/// Removes a finalizer; true if it existed.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_sdk::owner;
///
/// let mut pod = Pod::default();
/// owner::add_finalizer(&mut pod, "example.com/clean-up");
/// assert!(owner::remove_finalizer(&mut pod, "example.com/clean-up"));
/// assert!(!owner::remove_finalizer(&mut pod, "example.com/clean-up"));
/// ```
pub fn remove_finalizer<K: Resource>(object: &mut K, finalizer: &str) -> bool {
    let held = has_finalizer(object, finalizer);
    if let Some(finalizers) = &mut object.meta_mut().finalizers {
        finalizers.retain(|known| known != finalizer);
    }
    held
}

fn name<K: Resource>(object: &K) -> String {
    object
        .meta()
        .name
        .clone()
        .or_else(|| object.meta().generate_name.clone())
        .unwrap_or_default()
}
