//! There are as many pods as a set says: replica sets, and replication controllers, which are the same by an older name.

mod facts;
mod plan;
mod status;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mizzen_object::select::LabelSelector;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::expectations::Expectations;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{PODS, REPLICA_SETS, REPLICATION_CONTROLLERS};
use mizzen_sdk::{Key, Object, Resource};
use mizzen_value::{Value, value};

use crate::common::batch::slow_start;
use crate::common::claim::Claim;
use crate::common::failure;
use crate::common::fresh::Written;
use crate::common::pod::until_available;
use crate::common::pods::Owner;
use crate::common::{owned, template};
use crate::{After, Context, Error, Reconcile, Work, select};
use facts::{Facts, Known};
use plan::Plan;
use status::Seen;
use wake::{PATIENCE, Wake};

/// One of the two kinds.
pub(crate) struct Face {
    /// By which name the loop writes and records.
    name: &'static str,
    /// The name of its queue.
    queue: &'static str,
    /// The kind.
    kind: Resource,
    /// Whether a status says how many pods are on their way out.
    counts_terminating: bool,
    /// What a set selects; none for nothing.
    selector: select::Read,
}

static REPLICA_SET: Face = Face {
    name: "replicaset-controller",
    queue: "replicaset",
    kind: REPLICA_SETS,
    counts_terminating: true,
    selector: |set| selector(set["spec"]["selector"].clone()),
};

static REPLICATION_CONTROLLER: Face = Face {
    name: "replication-controller",
    queue: "replicationmanager",
    kind: REPLICATION_CONTROLLERS,
    counts_terminating: false,
    selector: |set| selector(value!({"matchLabels": (set["spec"]["selector"].clone())})),
};

/// How many sets are worked on at the same time.
const WORKERS: usize = 5;

/// Sets up the loop of replica sets.
pub(crate) fn start_replica_sets(context: &Context) -> Work {
    start(context, &REPLICA_SET)
}

/// Sets up the loop of replication controllers.
pub(crate) fn start_replication_controllers(context: &Context) -> Work {
    start(context, &REPLICATION_CONTROLLER)
}

fn start(context: &Context, face: &'static Face) -> Work {
    let context = context.named(face.name);
    let queue = context.queue(face.queue);
    let (sets, pods) = (context.follow(&face.kind), context.follow(&PODS));
    owned::index(&sets);
    select::index_selectors(&sets, face.selector);
    owned::index(&pods);
    let (known, expectations) = (
        Arc::<Known>::default(),
        Arc::new(Expectations::new(PATIENCE)),
    );
    let wake = Wake {
        face,
        sets,
        known,
        expectations,
        queue: queue.clone(),
    };
    wake.listen(&pods);
    Work::new(
        queue,
        WORKERS,
        Arc::new(Sets {
            context,
            wake,
            pods,
            written: Written::default(),
        }),
    )
}

/// A selector that selects everything would take everybody's pods; nobody can make one.
fn selector(selector: Value) -> Option<LabelSelector> {
    LabelSelector::of(&selector).filter(|selector| !selector.is_empty())
}

struct Sets {
    context: Context,
    wake: Wake,
    pods: Informer<Object>,
    written: Written,
}

/// The pods of a set.
struct Pods {
    active: Vec<Arc<Facts>>,
    n_terminating: usize,
}

impl Reconcile for Sets {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(entry) = self.wake.sets.store().get(key) else {
            self.wake.expectations.forget(key);
            self.written.forget(key);
            return Ok(After::Done);
        };
        if !self.written.is_seen(&entry) {
            return Ok(After::Done);
        }
        let set = entry.object()?;
        let may_act = self.wake.expectations.is_satisfied(key) && !set.is_going();
        let pods = self.pods_of(&set).await?;
        let outcome = match may_act {
            true => self.carry_out(&set, self.plan(&set, &pods)?).await,
            false => Ok(()),
        };
        let now = self.context.now();
        let failure = outcome.as_ref().err().map(describe);
        let n_terminating = self
            .wake
            .face
            .counts_terminating
            .then_some(pods.n_terminating);
        let seen = Seen {
            active: &pods.active,
            n_terminating,
            failure,
            now,
        };
        self.report(&set, status::of(&set, &seen)).await?;
        outcome?;
        Ok(self.next_look(&set, &pods, may_act))
    }
}

fn describe(error: &Error) -> String {
    match error {
        Error::Api(error) => failure::message(error),
        error => error.to_string(),
    }
}

impl Sets {
    /// The set's pods; those that match and belong to nobody become the set's.
    async fn pods_of(&self, set: &Object) -> Result<Pods, Error> {
        let selector = (self.wake.face.selector)(set);
        let matches = |pod: &Arc<Facts>| {
            selector
                .as_ref()
                .is_some_and(|selector| selector.matches(|name| pod.label(name)))
        };
        let candidates = self.facts(owned::candidates(&self.pods, set))?;
        let is_mine = |pod: &Arc<Facts>| {
            pod.owner
                .as_ref()
                .is_some_and(|owner| owner.uid == set.uid())
                && matches(pod)
        };
        let n_terminating = candidates
            .iter()
            .filter(|pod| pod.is_terminating && is_mine(pod))
            .count();
        let active = candidates.into_iter().filter(|pod| pod.is_active).collect();
        let kind = &self.wake.face.kind;
        let claim = Claim {
            context: &self.context,
            owner: set,
            owner_kind: kind,
            kind: &PODS,
            finalizers: &[],
        };
        Ok(Pods {
            active: claim.claim(active, matches).await?,
            n_terminating,
        })
    }

    fn facts(&self, entries: Vec<Entry<Object>>) -> Result<Vec<Arc<Facts>>, Error> {
        Ok(entries
            .iter()
            .map(|entry| self.wake.known.of(entry))
            .collect::<Result<_, _>>()?)
    }

    fn plan(&self, set: &Object, pods: &Pods) -> Result<Plan, Error> {
        let related = || {
            self.related(set)
                .map(|related| plan::neighbours(&related))
                .unwrap_or_default()
        };
        Ok(plan::plan(
            set["spec"]["replicas"].int(),
            &pods.active,
            related,
            self.context.now(),
        ))
    }

    /// The pods of all sets that belong to the same owner, this one's included. A set that belongs to nobody has no
    /// relatives, not even itself.
    fn related(&self, set: &Object) -> Result<Vec<Arc<Facts>>, Error> {
        let Some(owner) = set.controller() else {
            return Ok(Vec::new());
        };
        let sets = owned::of(&self.wake.sets, owner["uid"].str());
        self.facts(
            sets.iter()
                .flat_map(|set| owned::of(&self.pods, set.uid()))
                .collect(),
        )
    }

    async fn carry_out(&self, set: &Object, plan: Plan) -> Result<(), Error> {
        match plan {
            Plan::Rest => Ok(()),
            Plan::Create(n) => self.create(set, n).await,
            Plan::Delete(victims) => self.delete(set, victims).await,
        }
    }

    async fn create(&self, set: &Object, n: usize) -> Result<(), Error> {
        let (key, expectations) = (set.key(), &self.wake.expectations);
        // What was seen beyond expectation does not count for what comes now.
        expectations.forget(&key);
        expectations.expect_creations(&key, n);
        let owner = self.owner(set);
        let pod = template::pod(&set["spec"]["template"], set, owner.kind);
        let (n_made, outcome) = slow_start(n, || async {
            match owner.create(&pod).await {
                Err(error) if !failure::is_namespace_going(&error) => Err(error),
                _ => Ok(()),
            }
        })
        .await;
        (n_made..n).for_each(|_| expectations.creation_observed(&key));
        Ok(outcome?)
    }

    async fn delete(&self, set: &Object, victims: Vec<Arc<Facts>>) -> Result<(), Error> {
        let (key, expectations) = (set.key(), &self.wake.expectations);
        expectations.forget(&key);
        expectations.expect_deletions(&key, victims.iter().map(|pod| pod.key.to_string()));
        let owner = self.owner(set);
        let outcomes = join_all(victims.iter().map(|pod| async {
            let outcome = owner.delete(&pod.key).await;
            if !matches!(outcome, Ok(true)) {
                expectations.deletion_observed(&key, &pod.key.to_string());
            }
            outcome
        }))
        .await;
        outcomes
            .into_iter()
            .collect::<Result<Vec<bool>, Error>>()
            .map(drop)
    }

    fn owner<'a>(&'a self, set: &'a Object) -> Owner<'a> {
        Owner {
            context: &self.context,
            object: set,
            kind: &self.wake.face.kind,
        }
    }

    /// Writes the status unless it is so already; tries once more if somebody else was faster.
    async fn report(&self, set: &Object, status: Value) -> Result<(), Error> {
        if set["status"] == status {
            return Ok(());
        }
        let (api, kind) = (&self.context.api, &self.wake.face.kind);
        let mut changed = set.clone();
        changed.set("status", status.clone());
        let written = match api.update_status(kind, &changed).await {
            Ok(written) => written,
            Err(_) => {
                let mut fresh = api.get(kind, &set.key()).await?;
                fresh.set("status", status);
                api.update_status(kind, &fresh).await?
            }
        };
        self.written.note(&written);
        Ok(())
    }

    /// When the next pod becomes available, or what was expected is given up.
    fn next_look(&self, set: &Object, pods: &Pods, may_act: bool) -> After {
        let (min_ready, now) = (set["spec"]["minReadySeconds"].int(), self.context.now());
        let ready = pods.active.iter().filter(|pod| pod.standing.is_ready);
        let next = ready
            .filter_map(|pod| until_available(pod.standing.ready_since, min_ready, now))
            .min();
        let patience = (!may_act && !set.is_going()).then_some(PATIENCE + Duration::from_secs(1));
        next.into_iter()
            .chain(patience)
            .min()
            .map_or(After::Done, After::Again)
    }
}
