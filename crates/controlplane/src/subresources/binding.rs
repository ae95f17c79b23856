//! Binds a pod to a node: `POST` to `pods/NAME/binding`, or to the legacy `bindings`.

use mizzen_object::schema::CanonicalObject;
use mizzen_object::{GroupResource, Status, Violations, condition};
use mizzen_registry::{BoxFuture, Key, Update, UpdateFn};
use mizzen_value::{Value, value};

use mizzen_apiserver::response::{self, Response};
use mizzen_apiserver::verbs::wipe_system_metadata;
use mizzen_apiserver::verbs::{ResourceCall, check_key, set_namespace};
use mizzen_apiserver::{admission, decode, options};

pub(super) async fn create(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let ResourceCall {
        server,
        request,
        path,
        ..
    } = call;
    let options = options::write_options(request, "CreateOptions")?;
    let missing = Status::no_such_resource;
    let bindings = server
        .catalog
        .get("", "v1", "bindings")
        .ok_or_else(missing)?;
    let pods = server.catalog.get("", "v1", "pods").ok_or_else(missing)?;
    let binding = decode::decode_body(call, bindings.kind(), options.strictness)?;
    let mut binding = binding.into_value();
    if path.subresource.is_empty() {
        // Kubernetes: only a binding through `pods/NAME/binding` may have the uid of the pod.
        wipe_system_metadata(binding.entry("metadata"));
    }
    set_namespace(path, binding.entry("metadata"))?;
    admission::admit_below(call, &mut binding).await?;
    let kind = bindings.kind();
    admission::admit_other(call, &kind.gvk, &kind.root, &mut binding, None).await?;
    check_binding(&path.name, &binding)?;
    admission::check_other(call, &kind.gvk, &kind.root, &binding, None).await?;

    let name = binding["metadata"]["name"].str();
    check_key(pods.kind(), &path.namespace, name)?;
    let key = Key::new(&path.namespace, name);
    let mut change = BindPod {
        binding,
        now: server.registry.timestamp(),
    };
    let update = Update {
        user: request.user.clone(),
        dry_run: options.dry_run,
        unchecked: true,
        uid_precondition: true,
        ..Update::new(&pods, &key, &mut change)
    };
    server.registry.update(update).await?;
    Ok(created(call))
}

/// The Status of a successful create of a subresource.
pub(super) fn created(call: &ResourceCall) -> Response {
    let mut status = Status::success(Default::default());
    status.remove("details");
    status.set("code", 201);
    response::status_value(&call.server.types, &status, call.accept, 201)
}

/// Kubernetes: an invalid binding is a server error with the message of the validation (registry/core/pod/storage).
fn check_binding(name: &str, binding: &Value) -> Result<(), Status> {
    if !name.is_empty() && binding["metadata"]["name"].str() != name {
        return Err(Status::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    let mut violations = Violations::default();
    mizzen_core_kinds::pod::validate_binding(binding, &mut violations);
    violations
        .aggregate()
        .map_or(Ok(()), |all| Err(Status::unknown(all)))
}

/// Assigns a pod to the node of a binding.
struct BindPod {
    binding: Value,
    now: String,
}

impl UpdateFn for BindPod {
    fn apply<'a>(
        &'a mut self,
        current: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<CanonicalObject, Status>> {
        let outcome = self.bound(current.expect("the update does not create"));
        Box::pin(async { outcome.map(Into::into) })
    }
}

impl BindPod {
    fn bound(&self, current: &Value) -> Result<Value, Status> {
        let name = current["metadata"]["name"].str();
        let conflict = |why: String| {
            let resource = GroupResource {
                group: "".into(),
                resource: "pods/binding".into(),
            };
            Err(Status::conflict(&resource, name, &why))
        };
        self.check_version(current)?;
        if !current["metadata"]["deletionTimestamp"].is_null() {
            return conflict(format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            ));
        }
        let node = current["spec"]["nodeName"].str();
        if !node.is_empty() {
            return conflict(format!("pod {name} is already assigned to node {node:?}"));
        }
        if !current["spec"]["schedulingGates"].is_empty() {
            return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        let mut pod = current.clone();
        self.assign(&mut pod);
        Ok(pod)
    }

    /// Checks the resourceVersion of a binding. Another uid is rejected for that instead.
    fn check_version(&self, current: &Value) -> Result<(), Status> {
        let (expected, found) = (&self.binding["metadata"], &current["metadata"]);
        let other = !expected["uid"].is_empty() && expected["uid"] != found["uid"];
        let (version, stored) = (
            expected["resourceVersion"].str(),
            found["resourceVersion"].str(),
        );
        if other || version.is_empty() || version == stored {
            return Ok(());
        }
        let (namespace, name) = (found["namespace"].str(), found["name"].str());
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/pods/{namespace}/{name}, ResourceVersion: 0, \
             AdditionalErrorMsg: Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in \
             object meta: {stored}"
        );
        let resource = GroupResource {
            group: "".into(),
            resource: "pods".into(),
        };
        Err(Status::conflict(&resource, name, &why))
    }

    fn assign(&self, pod: &mut Value) {
        pod.entry("spec")
            .set("nodeName", self.binding["target"]["name"].clone());
        let metadata = pod.entry("metadata");
        for field in ["labels", "annotations"] {
            for (key, text) in self.binding["metadata"][field].entries() {
                metadata.entry(field).set(key, text.clone());
            }
        }
        for field in ["uid", "resourceVersion"] {
            match self.binding["metadata"][field].str() {
                "" if field == "resourceVersion" => metadata.set(field, ""),
                "" => {}
                text => metadata.set(field, text),
            }
        }
        let scheduled = value!({ "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": (&self.now) });
        // The nomination is fulfilled or obsolete.
        pod.entry("status").remove("nominatedNodeName");
        let conditions = pod.entry("status").entry("conditions").make_list();
        condition::set(conditions, scheduled);
    }
}
