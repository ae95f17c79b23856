//! What is strange about the types of a policy's expressions? Its status says so; nobody is refused for it.
//!
//! The types of built-in kinds are known here, those of others are read from what the server publishes of them
//! (`published`).

mod published;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use http::Method;
use mizzen_kinds::{Shapes, expression_kinds, expression_warnings};
use mizzen_object::GroupVersionKind;
use mizzen_object::schema::Struct;
use mizzen_sdk::api::Patch;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::VALIDATING_ADMISSION_POLICIES;
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use crate::census::Served;
use crate::{After, Context, Error, Reconcile, Work};

/// Under whose name the status is owned.
const MANAGER: &str = "validatingadmissionpolicy-status";
const WORKERS: usize = 5;

type Known = HashMap<GroupVersionKind, Arc<Struct>>;

/// The kinds that ship with us.
static BUILT_IN: LazyLock<Known> = LazyLock::new(|| {
    mizzen_kinds::catalog()
        .kinds
        .iter()
        .map(|kind| (kind.gvk.clone(), kind.root.clone()))
        .collect()
});

struct Policies {
    context: Context,
    policies: Informer<Object>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("validatingadmissionpolicy-status-controller");
    let queue = context.queue(MANAGER);
    let policies = context.follow(&VALIDATING_ADMISSION_POLICIES);
    let todo = queue.clone();
    policies.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    Work::new(queue, WORKERS, Arc::new(Policies { context, policies }))
}

impl Reconcile for Policies {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(policy) = self
            .policies
            .lister()
            .by_key(key)?
            .filter(|policy| is_new(policy))
        else {
            return Ok(After::Done);
        };
        let mut types = Types {
            served: Served::ask(self.context.api.client()).await?,
            others: Known::new(),
        };
        for kind in expression_kinds(&policy, &types) {
            self.learn(kind, &mut types.others).await?;
        }
        let status = status(&policy, expression_warnings(&policy, &types));
        let how = Patch::Apply { manager: MANAGER };
        match self
            .context
            .api
            .patch(&VALIDATING_ADMISSION_POLICIES, key, "status", how, &status)
            .await
        {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(After::Done),
        }
    }
}

impl Policies {
    /// Asks the server for the shape of a kind, unless it is known. A kind of which nobody knows anything is left out.
    async fn learn(&self, kind: GroupVersionKind, known: &mut Known) -> Result<(), Error> {
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

fn is_new(policy: &Object) -> bool {
    policy["metadata"]["generation"].int() > policy["status"]["observedGeneration"].int()
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

/// What is known of the types that a policy is about.
struct Types {
    served: Served,
    others: Known,
}

impl Shapes for Types {
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
            .or_else(|| self.others.get(kind))
            .cloned()
    }
}
