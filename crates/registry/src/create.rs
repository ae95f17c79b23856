//! Creates an object.

use mizzen_object::schema::CanonicalObject;
use mizzen_object::validate::meta;
use mizzen_object::{
    Action, GroupVersionKind, HookContext, Kind, MetaCheck, NameRule, Path, Status, User,
    Violations,
};
use mizzen_store::{Expect, Record, Write, WriteError};
use mizzen_value::Value;

use crate::decode::decode;
use crate::encode::{ManagedFieldsLimit, StorageLocation};
use crate::prepare::reset_for_create;
use crate::status::{read_status, write_status};
use crate::validate::validate;
use crate::{
    Key, NoAdmission, Object, Registry, Resource, ValidatingAdmission, Warnings, encode,
    parse_version,
};

/// How often a generated name that is taken is replaced by another.
const NAME_TRIES: usize = 8;

/// An object to be created.
pub struct Create<'a> {
    /// Its resource.
    pub resource: &'a Resource,
    /// Its key.
    pub namespace: &'a str,
    /// The object, decoded, defaulted and mutated.
    pub object: CanonicalObject,
    /// The user of the request.
    pub user: User,
    /// Dry run: everything but the commit.
    pub dry_run: bool,
    /// Server-side apply: managed fields are never dropped.
    pub applies: bool,
    /// Validating admission.
    pub gate: &'a dyn ValidatingAdmission,
    /// Collects warnings for the client.
    pub warnings: Option<&'a Warnings>,
}

impl<'a> Create<'a> {
    /// A create without a user, admission or warnings.
    pub fn new(
        resource: &'a Resource,
        namespace: &'a str,
        object: impl Into<CanonicalObject>,
    ) -> Create<'a> {
        Create {
            resource,
            namespace,
            object: object.into(),
            user: User::default(),
            dry_run: false,
            applies: false,
            gate: &NoAdmission,
            warnings: None,
        }
    }
}

impl Registry {
    /// Creates an object.
    pub async fn create(&self, mut create: Create<'_>) -> Result<Object, Status> {
        let object = std::mem::take(&mut create.object);
        let metadata = &object["metadata"];
        if metadata["generateName"].is_empty() || !metadata["name"].is_empty() {
            let outcome = self.try_create(&create, object).await;
            return outcome.map_err(CreateError::into_status);
        }
        for _ in 1..NAME_TRIES {
            match self.try_create(&create, object.clone()).await {
                Err(CreateError::NameTaken(_)) => {}
                outcome => return outcome.map_err(CreateError::into_status),
            }
        }
        self.try_create(&create, object)
            .await
            .map_err(CreateError::into_status)
    }

    async fn try_create(
        &self,
        create: &Create<'_>,
        mut object: CanonicalObject,
    ) -> Result<Object, CreateError> {
        let Create {
            resource,
            namespace,
            gate,
            ..
        } = *create;
        let violations = resource.validate_and_convert(&mut object);
        let kind = resource.validation_kind();
        let has_prefix = !object["metadata"]["generateName"].is_empty();
        let is_named = !object["metadata"]["name"].is_empty();
        let generated = !is_named && self.generate_name(kind, object.entry("metadata"));
        let key = Key::new(namespace, object["metadata"]["name"].str());
        let version = object["metadata"]["resourceVersion"].clone();
        self.fill_system_metadata(kind, &key, &mut object);
        reset_for_create(resource, &mut object);

        let mut object = object.into_value();
        let now = self.timestamp();
        let context = create.user.context(Action::Create, &now);
        resource.kind().hooks.prepare(&mut object, None, &context);
        validate_new(create, &object, &context, violations).await?;
        if let Some(warnings) = create.warnings {
            warnings.warn_all(resource.kind().hooks.warnings(&object, None, &context));
        }
        gate.check(Some(&object), None).await?;

        // Kubernetes: the storage layer rejects a resourceVersion, and a dry run does not reach it.
        if create.dry_run {
            object.entry("metadata").set("resourceVersion", version);
            return self.pretend(resource, &key, object).await;
        }
        if parse_version(version.str()).is_ok_and(|version| version != 0) {
            let problem = "resourceVersion should not be set on objects to be created";
            return Err(Status::unknown(problem).into());
        }
        object.entry("metadata").remove("selfLink");
        resource.to_stored(&mut object).await?;
        let owners = ManagedFieldsLimit::of(create.applies);
        let place = StorageLocation {
            key: resource.storage_key(&key),
            replaces: None,
        };
        let draft = encode::bounded(resource.stored(), &mut object, self.now(), owners, &place)?;
        let write = Write::put(resource.space(), key.stored(), Expect::Absent, draft);
        match self.store.commit_one(write).await {
            Ok(record) => Ok(resource.render_one(record).await?),
            Err(error) => {
                let there = match &error {
                    WriteError::Exists { actual, .. } => Some(actual.clone()),
                    _ => None,
                };
                let mut status = write_status(resource.kind(), &key.name, error);
                if let Some(there) = there {
                    status = exists(resource, status, &there);
                }
                let taken = has_prefix && status.reason == "AlreadyExists";
                Err(match taken && generated {
                    true => CreateError::NameTaken(status),
                    // Kubernetes: the message names generateName although the name was given (rest.CheckGeneratedNameError).
                    false if taken => {
                        CreateError::Final(CreateError::NameTaken(status).into_status())
                    }
                    false => CreateError::Final(status),
                })
            }
        }
    }

    async fn pretend(
        &self,
        resource: &Resource,
        key: &Key,
        mut object: Value,
    ) -> Result<Object, CreateError> {
        let found = self.store.get(resource.space(), &key.stored()).await;
        if let Some(record) = found.map_err(read_status)? {
            let status = Status::already_exists(&resource.kind().resource(), &key.name);
            return Err(exists(resource, status, &record).into());
        }
        resource.through_storage(&mut object).await?;
        resource.from_hub(&mut object);
        Ok(Object::unstored(
            encode::plain(resource.kind(), &mut object).into(),
        ))
    }
}

/// Adds to an AlreadyExists error that the existing object is being deleted.
fn exists(resource: &Resource, mut status: Status, there: &Record) -> Status {
    let is_going = |object: Value| !object["metadata"]["deletionTimestamp"].is_null();
    if decode(resource, there).is_ok_and(is_going) {
        status.message.insert_str(0, "object is being deleted: ");
    }
    status
}

/// Why an attempt failed.
enum CreateError {
    /// The generated name is taken.
    NameTaken(Status),
    Final(Status),
}

impl CreateError {
    fn into_status(self) -> Status {
        match self {
            CreateError::Final(status) => status,
            CreateError::NameTaken(mut status) => {
                status.message +=
                    ", the server was not able to generate a unique name for the object";
                Status {
                    retry_after: Some(1),
                    ..status
                }
            }
        }
    }
}

impl From<Status> for CreateError {
    fn from(status: Status) -> CreateError {
        CreateError::Final(status)
    }
}

/// Validates a new object and returns all violations; `violations` are the earlier ones.
async fn validate_new(
    create: &Create<'_>,
    object: &Value,
    context: &HookContext<'_>,
    mut violations: Violations,
) -> Result<(), Status> {
    let kind = create.resource.validation_kind();
    check_kind(kind, object)?;
    let (metadata, namespaced) = (&object["metadata"], kind.is_namespaced());
    let path = Path::new("metadata");
    check_own_meta(
        kind,
        context.action,
        metadata,
        &Value::Null,
        &mut violations,
    );
    let mut violations = validate(create.resource, object, None, context, violations).await;
    if let Some(authorized) = create.gate.authorize(object, None, &mut violations) {
        authorized.await;
    }
    if let Some(warnings) = create.warnings {
        warnings.warn_all(violations.1.drain(..));
    }
    if violations.is_empty() {
        meta::object_meta(
            metadata,
            namespaced,
            NameRule::PathSegment,
            &path,
            &mut violations,
        );
    }
    if violations.is_empty() {
        return Ok(());
    }
    // Kubernetes: an object that is stored in another group is validated under that group's name.
    Err(Status::invalid(
        &kind.gvk,
        metadata["name"].str(),
        &violations,
    ))
}

/// Validates metadata as the validation of the kind does.
pub(crate) fn check_own_meta(
    kind: &Kind,
    action: Action,
    new: &Value,
    old: &Value,
    violations: &mut Violations,
) {
    let (rule, namespaced, path) = (kind.rules.name, kind.is_namespaced(), Path::new("metadata"));
    for check in kind.rules.meta_checks.for_action(action) {
        match (check, kind.rules.plain_metadata) {
            (MetaCheck::Whole, true) => meta::object_meta(new, namespaced, rule, &path, violations),
            (MetaCheck::Whole, false) => {
                meta::native_object_meta(new, namespaced, rule, violations)
            }
            (MetaCheck::Change, true) => meta::object_meta_update(new, old, &path, violations),
            (MetaCheck::Change, false) => meta::native_object_meta_update(new, old, violations),
        }
    }
}

/// Kubernetes: kind and apiVersion of a custom object are validated first, and alone if they are wrong.
pub(crate) fn check_kind(kind: &Kind, object: &Value) -> Result<(), Status> {
    if !kind.rules.loose {
        return Ok(());
    }
    let mut violations = Violations::default();
    let expected = [
        ("kind", kind.gvk.kind.clone()),
        ("apiVersion", kind.gvk.api_version()),
    ];
    for (field, expected) in expected {
        let said = object[field].str();
        if said != expected {
            violations.invalid(field, said, &format!("must be {expected}"));
        }
    }
    if violations.is_empty() {
        return Ok(());
    }
    let api_version = object["apiVersion"].str();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = object["kind"].str().into();
    let said = GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind,
    };
    Err(Status::invalid(
        &said,
        object["metadata"]["name"].str(),
        &violations,
    ))
}
