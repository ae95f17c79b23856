//! Priority: sets the priority of a pod from its PriorityClass or the global default.

use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_value::Value;

use super::Attributes;
use mizzen_apiserver::admission::WriteStrategy;
use mizzen_apiserver::verbs::ResourceCall;

const GROUP: &str = "scheduling.k8s.io";
const CLASSES: &str = "priorityclasses";
/// The system priority classes.
const SYSTEM: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

/// Sets the priority of a new pod.
pub(super) fn admit(attributes: &Attributes, pod: &mut CanonicalObject) -> Result<(), Status> {
    if !attributes.is_main("", "pods") {
        return Ok(());
    }
    match attributes.old {
        Some(old) => {
            for field in ["priority", "preemptionPolicy"] {
                if pod["spec"][field].is_null() && !old["spec"][field].is_null() {
                    pod.entry("spec").set(field, old["spec"][field].clone());
                }
            }
        }
        None => set_priority(attributes, pod)?,
    }
    Ok(())
}

/// Rejects a second global default.
pub(super) fn check(attributes: &Attributes, class: &Value) -> Result<(), Status> {
    if !attributes.is_main(GROUP, CLASSES) || !class["globalDefault"].bool() {
        return Ok(());
    }
    let Some(default) = default_class(attributes)? else {
        return Ok(());
    };
    let name = default["metadata"]["name"].str();
    if !attributes.is_create() && name == class["metadata"]["name"].str() {
        return Ok(());
    }
    let why =
        format!("PriorityClass {name} is already marked as default. Only one default can exist");
    Err(attributes.forbidden(class, &why))
}

/// Rejects the deletion of a system class. Kubernetes: this is no plug-in but part of the resource, and cannot be disabled
/// (priorityclass/storage/storage.go).
pub(crate) struct SystemPriorityClasses;
impl WriteStrategy for SystemPriorityClasses {
    fn check_delete(&self, call: &ResourceCall) -> Result<(), Status> {
        let (kind, name) = (call.resource.kind(), &call.path.name);
        if kind.plural == CLASSES && kind.gvk.group == GROUP && SYSTEM.contains(&name.as_str()) {
            let why = "this is a system priority class and cannot be deleted";
            return Err(Status::forbidden(&kind.resource(), name, why));
        }
        Ok(())
    }
}

fn set_priority(attributes: &Attributes, pod: &mut Value) -> Result<(), Status> {
    let class = match pod["spec"]["priorityClassName"].str() {
        "" => default_class(attributes)?.unwrap_or_default(),
        name => attributes.find(GROUP, CLASSES, "", name).ok_or_else(|| {
            attributes.forbidden(pod, &format!("no PriorityClass with name {name} was found"))
        })?,
    };
    let priority = class["value"].int();
    let policy = class["preemptionPolicy"]
        .as_str()
        .unwrap_or("PreemptLowerPriority");
    check_given(&pod["spec"], priority, policy).map_err(|why| attributes.forbidden(pod, &why))?;
    let spec = pod.entry("spec");
    if !class.is_null() {
        spec.set("priorityClassName", class["metadata"]["name"].clone());
    }
    spec.set("priority", priority);
    spec.set("preemptionPolicy", policy);
    Ok(())
}

/// Priority and preemption policy in the spec must match those of the class.
fn check_given(spec: &Value, priority: i64, policy: &str) -> Result<(), String> {
    if let Some(given) = spec["priority"].as_int().filter(|given| *given != priority) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission \
             controller computed {priority} from the given PriorityClass name"
        ));
    }
    if let Some(given) = spec["preemptionPolicy"]
        .as_str()
        .filter(|given| *given != policy)
    {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        ));
    }
    Ok(())
}

/// The global default: of several, the one with the lowest priority.
fn default_class(attributes: &Attributes) -> Result<Option<Value>, Status> {
    let all = attributes.all(GROUP, CLASSES, "")?;
    Ok(all
        .into_iter()
        .filter(|class| class["globalDefault"].bool())
        .min_by_key(|class| class["value"].int()))
}
