//! The workloads and their order: create, read, list, watch, delete.

mod list;
mod loops;
mod point;
mod scale;
mod sustained;
mod watch;

use std::sync::Arc;

use super::load::WorkloadError;
use super::meter::settle;
use super::objects::{Collection, ObjectKind};
use super::report::{BenchReport, WorkloadOutcome};
use super::session::Session;
use super::{BenchError, Options, account, chain, definition, namespace};
use list::ListForm;
pub(crate) use loops::ControlLoop;

/// A workload of a kind: one line of the report.
#[derive(Clone, Copy, Debug)]
enum Workload {
    Create,
    Get,
    /// GET and PUT.
    Update,
    /// Merge patch.
    Patch,
    /// Strategic merge patch.
    StrategicPatch,
    /// Server-side apply.
    Apply,
    List(ListForm),
    /// With this many watchers.
    Watch(usize),
    Delete,
}

impl Workload {
    /// All workloads of a kind, in their order.
    fn all(kind: ObjectKind, options: &Options) -> Vec<Self> {
        match kind {
            ObjectKind::CrowdedPods => {
                return vec![Self::Create, Self::StrategicPatch, Self::Delete];
            }
            ObjectKind::Deployments => return vec![Self::Create, Self::Apply, Self::Delete],
            ObjectKind::Widgets | ObjectKind::Events => {
                return vec![Self::Create, Self::Patch, Self::Delete];
            }
            ObjectKind::Configmaps | ObjectKind::Pods => {}
        }
        let mut all = vec![Self::Create, Self::Get, Self::Update, Self::Patch];
        all.extend(ListForm::ALL.map(Self::List));
        all.extend(options.watchers.iter().copied().map(Self::Watch));
        all.push(Self::Delete);
        all
    }

    fn name(self) -> String {
        match self {
            Self::Create => "create".to_owned(),
            Self::Get => "get".to_owned(),
            Self::Update => "update".to_owned(),
            Self::Patch => "patch".to_owned(),
            Self::StrategicPatch => "strategic-patch".to_owned(),
            Self::Apply => "apply".to_owned(),
            Self::List(form) => form.name().to_owned(),
            Self::Watch(n_watchers) => format!("watch-{n_watchers}"),
            Self::Delete => "delete".to_owned(),
        }
    }

    fn is_selected(self, kind: ObjectKind, only: &[String]) -> bool {
        only.is_empty() || only.iter().any(|pattern| self.matches(kind, pattern))
    }

    fn matches(self, kind: ObjectKind, pattern: &str) -> bool {
        let name = match pattern.split_once('/') {
            Some((resource, name)) if resource == kind.name() => name,
            Some(_) => return false,
            None => pattern,
        };
        name == self.name() || (name == "watch" && matches!(self, Self::Watch(_)))
    }

    async fn run(
        self,
        session: &Arc<Session>,
        collection: &Collection,
    ) -> Result<WorkloadOutcome, WorkloadError> {
        let name = format!("{}/{}", collection.kind.name(), self.name());
        match self {
            Self::Create => point::create(session, collection, name).await,
            Self::Get => point::get(session, collection, name).await,
            Self::Update => point::update(session, collection, name).await,
            Self::Patch => point::patch(session, collection, name).await,
            Self::StrategicPatch => point::strategic_patch(session, collection, name).await,
            Self::Apply => point::apply(session, collection, name).await,
            Self::List(form) => list::run(session, collection, name, form).await,
            Self::Watch(n_watchers) => watch::run(session, collection, name, n_watchers).await,
            Self::Delete => point::delete(session, collection, name).await,
        }
    }
}

/// Rejects an `--only` that selects no workload.
pub(crate) fn check_names(options: &Options) -> Result<(), BenchError> {
    let all = |kind: ObjectKind| Workload::all(kind, options);
    let exists = |pattern: &str| {
        options.kinds.iter().any(|&kind| {
            all(kind)
                .iter()
                .any(|workload| workload.matches(kind, pattern))
        })
    };
    match options.only.iter().find(|pattern| !exists(pattern)) {
        None => Ok(()),
        Some(name) => {
            let mut known: Vec<String> = Vec::new();
            for workload in options.kinds.iter().flat_map(|&kind| all(kind)) {
                if !known.contains(&workload.name()) {
                    known.push(workload.name());
                }
            }
            Err(BenchError::UnknownWorkload {
                name: name.clone(),
                known: known.join(", "),
            })
        }
    }
}

/// Runs the selected workloads. A workload that fails is reported; only an error of the set-up ends the run.
pub(crate) async fn run(
    session: &Arc<Session>,
    report: &mut BenchReport,
) -> Result<(), BenchError> {
    session.describe(report).await?;
    namespace::create(session).await?;
    if session.options.as_service_account {
        account::use_service_account(session).await?;
    }
    report.print_heading();
    if !session.options.scale.is_empty() {
        scale::run(session, report).await;
        return Ok(());
    }
    if let Some(rate) = session.options.sustain {
        sustained::run(session, rate, report).await;
        return Ok(());
    }
    if !session.options.loops.is_empty() {
        loops::run(session, report).await;
        return Ok(());
    }
    for &kind in &session.options.kinds {
        run_kind(session, &Collection::new(kind, &session.namespace), report).await?;
    }
    Ok(())
}

/// Runs the selected workloads of a kind, and deletes its objects.
async fn run_kind(
    session: &Arc<Session>,
    collection: &Collection,
    report: &mut BenchReport,
) -> Result<(), BenchError> {
    let is_selected =
        |workload: &Workload| workload.is_selected(collection.kind, &session.options.only);
    let all = Workload::all(collection.kind, &session.options);
    if !all.iter().any(is_selected) {
        return Ok(());
    }
    if collection.kind == ObjectKind::Widgets {
        definition::create(session).await?;
    }
    // Create always runs, because it fills the collection; it is reported only if it is selected.
    for workload in all
        .iter()
        .filter(|workload| matches!(workload, Workload::Create) || is_selected(workload))
    {
        settle(&session.servers).await?;
        match workload.run(session, collection).await {
            Ok(outcome) if is_selected(workload) => report.add(outcome),
            Ok(_) => {}
            Err(error) => {
                report.fail(
                    format!("{}/{}", collection.kind.name(), workload.name()),
                    chain(&error),
                );
                if matches!(workload, Workload::Create) {
                    break;
                }
            }
        }
    }
    Ok(namespace::delete_objects(session, collection).await?)
}
