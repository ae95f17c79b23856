//! Making an object.

use mizzen_object::validate::meta;
use mizzen_object::{
    Action, Context, GroupVersionKind, Kind, NameRule, Path, Status, Value, Violations, Who,
};
use mizzen_store::{Expect, Write, WriteError};

use crate::encode::Owners;
use crate::prepare::reset_for_create;
use crate::status::refused;
use crate::validate::validate;
use crate::{Gate, Key, Object, Registry, Resource, encode, parse_version};

/// How often a generated name that is taken is replaced by another.
const NAME_TRIES: usize = 8;

/// How an object is made.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    /// Who asks.
    pub user: Who,
    /// Do everything but store it.
    pub dry_run: bool,
    /// Whether it is applied, so that owners are never forgotten.
    pub applies: bool,
}

impl Registry {
    /// Makes an object in `namespace`. `draft` is decoded, defaulted and mutated already. Adds to `warnings`
    /// what the client should know.
    pub async fn create(
        &self,
        resource: &Resource,
        namespace: &str,
        draft: Value,
        options: &CreateOptions,
        gate: &dyn Gate,
        warnings: &mut Vec<String>,
    ) -> Result<Object, Status> {
        let version = draft["metadata"]["resourceVersion"].str();
        if parse_version(version).is_ok_and(|version| version != 0) {
            return Err(Status::unknown("resourceVersion should not be set on objects to be created"));
        }
        for _ in 1..NAME_TRIES {
            let mut fresh = Vec::new();
            match self.try_create(resource, namespace, draft.clone(), options, gate, &mut fresh).await {
                Err(Refusal::NameTaken(_)) => continue,
                outcome => {
                    warnings.append(&mut fresh);
                    return outcome.map_err(Refusal::into_status);
                }
            }
        }
        self.try_create(resource, namespace, draft, options, gate, warnings)
            .await
            .map_err(Refusal::into_status)
    }

    async fn try_create(
        &self,
        resource: &Resource,
        namespace: &str,
        mut object: Value,
        options: &CreateOptions,
        gate: &dyn Gate,
        warnings: &mut Vec<String>,
    ) -> Result<Object, Refusal> {
        let violations = resource.judge_and_convert(&mut object);
        let generated = self.generate_name(object.entry("metadata"));
        let key = Key::new(namespace, object["metadata"]["name"].str());
        self.fill_system_metadata(&key, object.entry("metadata"));
        reset_for_create(resource, &mut object);

        let now = self.timestamp();
        let context = options.user.context(Action::Create, &now);
        resource.kind().hooks.prepare(&mut object, None, &context);
        validate_new(resource, &object, &context, violations, gate, warnings).await?;
        warnings.extend(resource.kind().hooks.warnings(&object, None, &context));
        gate.check(Some(&object), None).await?;

        if options.dry_run {
            return self.pretend(resource, &key, object);
        }
        resource.to_stored(&mut object).await?;
        let owners = Owners::of(options.applies);
        let draft = encode::bounded(resource.stored(), &mut object, self.now(), owners)?;
        let write = Write::put(resource.space(), key.stored(), Expect::Absent, draft);
        match self.store.commit_one(write).await {
            Ok(record) => Ok(resource.show_one(record).await?),
            Err(error) => {
                let going = is_going(&error);
                let mut status = refused(resource.kind(), &key.name, error);
                if going {
                    status.message.insert_str(0, "object is being deleted: ");
                }
                let taken = generated && status.reason == "AlreadyExists";
                Err(if taken { Refusal::NameTaken(status) } else { Refusal::Final(status) })
            }
        }
    }

    fn pretend(&self, resource: &Resource, key: &Key, mut object: Value) -> Result<Object, Refusal> {
        if resource.record(key).is_some() {
            return Err(Status::already_exists(&resource.kind().resource(), &key.name).into());
        }
        resource.from_hub(&mut object);
        Ok(Object::unstored(encode::plain(resource.kind(), &mut object).into()))
    }
}

/// Whether the name is taken by an object that is on its way out.
fn is_going(error: &WriteError) -> bool {
    match error {
        WriteError::Exists { actual, .. } => {
            !Object::unstored(actual.value.clone()).value()["metadata"]["deletionTimestamp"].is_null()
        }
        _ => false,
    }
}

/// Why an attempt failed.
enum Refusal {
    /// Another generated name may do.
    NameTaken(Status),
    Final(Status),
}

impl Refusal {
    fn into_status(self) -> Status {
        match self {
            Refusal::Final(status) => status,
            Refusal::NameTaken(mut status) => {
                status.message += ", the server was not able to generate a unique name for the object";
                status
            }
        }
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Refusal {
        Refusal::Final(status)
    }
}

/// Refuses for all reasons at once; `violations` are those that are known already.
async fn validate_new(
    resource: &Resource,
    object: &Value,
    context: &Context<'_>,
    mut violations: Violations,
    gate: &dyn Gate,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let kind = resource.judged();
    check_kind(kind, object)?;
    let (metadata, namespaced) = (&object["metadata"], kind.is_namespaced());
    let path = Path::new("metadata");
    match kind.rules.plain_metadata {
        true => meta::object_meta(metadata, namespaced, kind.rules.name, &path, &mut violations),
        false => meta::native_object_meta(metadata, namespaced, kind.rules.name, &mut violations),
    }
    let mut violations = validate(resource, object, None, context, violations).await;
    if let Some(authorized) = gate.authorize(object, None, &mut violations) {
        authorized.await;
    }
    warnings.append(&mut violations.1);
    if violations.is_empty() {
        meta::object_meta(metadata, namespaced, NameRule::PathSegment, &path, &mut violations);
    }
    if violations.is_empty() {
        return Ok(());
    }
    // Kubernetes: an object that is stored in another group is judged under that group's name.
    Err(Status::invalid(&kind.gvk, metadata["name"].str(), &violations))
}

/// Kubernetes: what a custom object says it is, is a matter of validation, and of nothing else if it is wrong.
pub(crate) fn check_kind(kind: &Kind, object: &Value) -> Result<(), Status> {
    if !kind.rules.loose {
        return Ok(());
    }
    let mut violations = Violations::default();
    let expected = [("kind", kind.gvk.kind.clone()), ("apiVersion", kind.gvk.api_version())];
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
    let said = GroupVersionKind { group: group.into(), version: version.into(), kind };
    Err(Status::invalid(&said, object["metadata"]["name"].str(), &violations))
}
