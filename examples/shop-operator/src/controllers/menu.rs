//! The controller of menus: a Menu has a ConfigMap of its name.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, ObjectMeta};
use mizzen_sdk::controller::{Action, Context, Controller, Error, ReconcileObject, typed};
use mizzen_sdk::write::{self, Applier};
use mizzen_sdk::{Rbac, condition, owner};

use crate::api::menu::Menu;

/// Who writes the fields, in managed fields.
const FIELD_MANAGER: &str = "menu-controller";
/// Where ConfigMaps are: a cluster-scoped object may own objects of any namespace.
const NAMESPACE: &str = "default";

/// The controller, for the manager.
pub fn controller(context: &Context) -> Controller {
    Controller::for_kind(context, typed::<Menu>())
        .owns(typed::<ConfigMap>())
        .record_failures("MenuFailed")
        .reconcile_objects(MenuReconciler)
}

/// Keeps the ConfigMap of a Menu as its spec says, and reports the condition `Ready`.
///
/// The attributes become the roles of `config/rbac`: see `mizzen generate`.
#[derive(Rbac)]
#[rbac(
    group("shop.example.com"),
    resources("menus"),
    verbs("get", "list", "watch")
)]
#[rbac(group("shop.example.com"), resources("menus/status"), verbs("update"))]
#[rbac(
    group(""),
    resources("configmaps"),
    verbs("get", "list", "watch", "create", "patch")
)]
pub struct MenuReconciler;

impl ReconcileObject<Menu> for MenuReconciler {
    // It reads the current state and decides. It does not matter which event woke it, how often it
    // runs, or whether it was killed between two writes.
    async fn reconcile(&self, object: Arc<Menu>, context: &Context) -> Result<Action, Error> {
        if owner::is_terminating(&*object) {
            return Ok(Action::done());
        }
        let name = object.name_any();
        let config_maps: Api<ConfigMap> = Api::namespaced(context.client(), NAMESPACE);
        let existing = config_maps.get_opt(&name).await?;
        let is_foreign = existing.is_some_and(|it| !owner::is_controlled_by(&it, &*object));
        let (mut ready, action) = match is_foreign {
            true => {
                let message = format!("ConfigMap {name} exists and belongs to another owner");
                let ready = condition::new("Ready", false, "Exists", message, context.now());
                // Events of a ConfigMap enqueue its owner, and this one is not ours.
                (ready, Action::requeue_after(Duration::from_secs(60)))
            }
            false => {
                let wanted = config_map(&object)?;
                let applier = Applier::new(FIELD_MANAGER);
                applier.apply(&config_maps, &name, &wanted).await?;
                let message = format!("ConfigMap {name} is up to date");
                let ready = condition::new("Ready", true, "Applied", message, context.now());
                (ready, Action::done())
            }
        };
        ready.observed_generation = object.metadata.generation;
        let objects: Api<Menu> = Api::all(context.client());
        write::update_status(&objects, &name, |object| {
            let status = object.status.get_or_insert_default();
            status.observed_generation = ready.observed_generation;
            condition::set(&mut status.conditions, ready.clone());
        })
        .await?;
        Ok(action)
    }
}

/// The ConfigMap that an object wants.
fn config_map(object: &Menu) -> Result<ConfigMap, Error> {
    let message = object.spec.message.clone().unwrap_or_default();
    let mut config_map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(object.name_any()),
            namespace: Some(NAMESPACE.into()),
            ..ObjectMeta::default()
        },
        data: Some([("message".into(), message)].into()),
        ..ConfigMap::default()
    };
    owner::set_controller(object, &(), &mut config_map)?;
    Ok(config_map)
}
