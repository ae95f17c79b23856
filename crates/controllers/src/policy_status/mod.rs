//! The ValidatingAdmissionPolicy status controller: type-checks the expressions of a policy and
//! writes warnings to its status.
//!
//! The types of built-in kinds are compiled in; those of other kinds are read from the server's
//! OpenAPI (`published`).

mod published;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use http::Method;
use mizzen_apiextensions::type_check::{Shapes, expression_kinds, expression_warnings};
use mizzen_object::GroupVersionKind;
use mizzen_object::schema::Struct;
use mizzen_sdk::controller::Context;
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::VALIDATING_ADMISSION_POLICIES;
use mizzen_sdk::write::{ignore_not_found, is_not_found};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use crate::metadata_informers::DiscoveredKinds;
use crate::{Action, Controller, ControllerContext, Error, Reconcile};

/// The field manager of the status.
const MANAGER: &str = "validatingadmissionpolicy-status";
const WORKERS: usize = 5;

type KnownShapes = HashMap<GroupVersionKind, Arc<Struct>>;

/// The built-in kinds.
static BUILT_IN: LazyLock<KnownShapes> = LazyLock::new(|| {
    mizzen_schemas::schemas()
        .kinds
        .iter()
        .map(|kind| (kind.gvk.clone(), kind.root.clone()))
        .collect()
});

struct PolicyStatusController {
    context: ControllerContext,
    policies: Informer<Object>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("validatingadmissionpolicy-status-controller");
    let policies = context.informer(&VALIDATING_ADMISSION_POLICIES);
    Controller::for_kind(&context, &VALIDATING_ADMISSION_POLICIES)
        .queue_name(MANAGER)
        .workers(WORKERS)
        .reconcile(PolicyStatusController { context, policies })
}

impl Reconcile for PolicyStatusController {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let is_new = |policy: &Arc<Object>| {
            policy["metadata"]["generation"].int() > policy["status"]["observedGeneration"].int()
        };
        let Some(policy) = self.policies.lister().by_key(key)?.filter(is_new) else {
            return Ok(Action::done());
        };
        let mut types = PolicyTypes {
            served: DiscoveredKinds::discover(self.context.api.client()).await?,
            from_server: KnownShapes::new(),
        };
        for kind in expression_kinds(&policy, &types) {
            self.load_shape(kind, &mut types.from_server).await?;
        }
        let status = status(&policy, expression_warnings(&policy, &types));
        let how = PatchType::Apply { manager: MANAGER };
        ignore_not_found(
            self.context
                .api
                .patch(&VALIDATING_ADMISSION_POLICIES, key, "status", how, &status)
                .await,
        )?;
        Ok(Action::done())
    }
}

impl PolicyStatusController {
    /// Reads the schema of a kind from the server unless it is known. An unknown kind is left out.
    async fn load_shape(
        &self,
        kind: GroupVersionKind,
        known: &mut KnownShapes,
    ) -> Result<(), Error> {
        if BUILT_IN.contains_key(&kind) || known.contains_key(&kind) {
            return Ok(());
        }
        let document = match self
            .context
            .api
            .raw(Method::GET, &published::page(&kind), None)
            .await
        {
            Err(error) if is_not_found(&error) => return Ok(()),
            document => document?,
        };
        if let Some(shape) = published::shape(&document, &kind) {
            known.insert(kind, shape);
        }
        Ok(())
    }
}

fn status(policy: &Object, warnings: Vec<Value>) -> Value {
    let of = VALIDATING_ADMISSION_POLICIES;
    let mut checking = Value::object();
    if !warnings.is_empty() {
        checking.set("expressionWarnings", warnings);
    }
    value!({
        "apiVersion": (of.api_version()),
        "kind": (of.kind.to_string()),
        "metadata": { "name": (policy.name()) },
        "status": {
            "observedGeneration": (policy["metadata"]["generation"].int()),
            "typeChecking": checking
        }
    })
}

/// The types that a policy matches.
struct PolicyTypes {
    served: DiscoveredKinds,
    from_server: KnownShapes,
}

impl Shapes for PolicyTypes {
    fn kind(&self, group: &str, version: &str, resource: &str) -> Option<GroupVersionKind> {
        let mut served = self.served.kinds.iter().map(|kind| &kind.resource);
        let found = served
            .find(|of| of.plural == resource && of.version == version && of.group == group)?;
        Some(GroupVersionKind {
            group: group.into(),
            version: version.into(),
            kind: (&*found.kind).into(),
        })
    }

    fn shape(&self, kind: &GroupVersionKind) -> Option<Arc<Struct>> {
        BUILT_IN
            .get(kind)
            .or_else(|| self.from_server.get(kind))
            .cloned()
    }
}
