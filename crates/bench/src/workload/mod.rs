//! What can be measured, and in which order: fill, read, list, watch, empty.

mod list;
mod loops;
mod point;
mod scale;
mod watch;

use std::sync::Arc;

use super::load::WorkloadError;
use super::meter::settle;
use super::objects::{Collection, Kind};
use super::report::{Outcome, Report};
use super::session::Session;
use super::{BenchError, Options, account, chain, definition, namespace};
use list::Form;
pub(crate) use loops::Loop;

/// One line of the report, for each kind.
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
    List(Form),
    /// So many watchers.
    Watch(usize),
    Delete,
}

impl Workload {
    /// Everything that a kind is there for, in the order in which it runs.
    fn all(kind: Kind, options: &Options) -> Vec<Self> {
        match kind {
            Kind::CrowdedPods => return vec![Self::Create, Self::StrategicPatch, Self::Delete],
            Kind::Deployments => return vec![Self::Create, Self::Apply, Self::Delete],
            Kind::Widgets | Kind::Events => return vec![Self::Create, Self::Patch, Self::Delete],
            Kind::Configmaps | Kind::Pods => {}
        }
        let mut all = vec![Self::Create, Self::Get, Self::Update, Self::Patch];
        all.extend(Form::ALL.map(Self::List));
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

    fn is_wanted(self, kind: Kind, only: &[String]) -> bool {
        only.is_empty() || only.iter().any(|pattern| self.matches(kind, pattern))
    }

    fn matches(self, kind: Kind, pattern: &str) -> bool {
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
    ) -> Result<Outcome, WorkloadError> {
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

/// Refuses a `--only` that would silently select nothing.
pub(crate) fn check_names(options: &Options) -> Result<(), BenchError> {
    let all = |kind: Kind| Workload::all(kind, options);
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

/// Runs what the options ask for. Only an error of the set-up ends it early: a workload that fails is reported.
pub(crate) async fn run(session: &Arc<Session>, report: &mut Report) -> Result<(), BenchError> {
    session.describe(report).await?;
    namespace::create(session).await?;
    if session.options.as_service_account {
        account::act(session).await?;
    }
    report.head();
    if !session.options.scale.is_empty() {
        scale::run(session, report).await;
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

async fn run_kind(
    session: &Arc<Session>,
    collection: &Collection,
    report: &mut Report,
) -> Result<(), BenchError> {
    let wanted = |workload: &Workload| workload.is_wanted(collection.kind, &session.options.only);
    let all = Workload::all(collection.kind, &session.options);
    if !all.iter().any(wanted) {
        return Ok(());
    }
    if collection.kind == Kind::Widgets {
        definition::create(session).await?;
    }
    // Creating is how the collection is filled, so it always runs; it is not always reported.
    for workload in all
        .iter()
        .filter(|workload| matches!(workload, Workload::Create) || wanted(workload))
    {
        settle(&session.servers).await?;
        match workload.run(session, collection).await {
            Ok(outcome) if wanted(workload) => report.add(outcome),
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
    Ok(namespace::empty(session, collection).await?)
}
