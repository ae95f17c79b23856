//! The scheduling loop: apply events, schedule the next pod.

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_sdk::cache::Lister;
use mizzen_sdk::clock::{Clock, Rng};
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::event::Severity;
use mizzen_sdk::resource::NODES;
use mizzen_value::Str;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, sleep_until};
use tracing::Instrument as _;

use crate::HashMap;
use crate::bind::{BindFailure, BindingCycle};
use crate::cache::Slot;
use crate::cluster_state::ClusterState;
use crate::configuration::ExtensionPoint;
use crate::cycle::{
    CycleState, Diagnosis, FilterRun, num_feasible_nodes_to_find, prioritize_nodes,
    run_pre_filters, select_host,
};
use crate::event_recorder::{EventNote, EventRecorder, EventSeriesCache};
use crate::events::SchedulerMessage;
use crate::extender::Extender;
use crate::framework::{PermitFailure, ReservedPlugins, WaitingPods};
use crate::framework_metrics::StatusCode;
use crate::metrics::{AttemptResult, GaugeValues, SchedulerMetrics};
use crate::model::PodInfo;
use crate::plugin::{Name, PluginNames};
use crate::pod_status::{PodStatusUpdate, PodStatusWriter, UnscheduledCondition};
use crate::profile::Profile;
use crate::queue::{QueuedPodInfo, SchedulingQueue};
use crate::reserve::{self, PreBindStep, PreBinder};
use crate::run::Options;

/// The number of attempts before the loop yields to other tasks.
const ATTEMPTS_PER_TURN: u32 = 8;
/// How often gauges are updated.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);
/// The most concurrent binding cycles.
const MAX_BINDING_PODS: usize = 512;

/// The state of the scheduling loop.
pub(crate) struct Scheduler {
    pub cluster: ClusterState,
    pub queue: SchedulingQueue,
    pub profiles: HashMap<Str, Arc<Profile>>,
    pub extenders: Arc<[Extender]>,
    /// Nodes as the API has them, for extenders.
    pub nodes: Lister<Object>,
    /// Pods in their binding cycle.
    pub binding_pods: HashMap<Str, BindingPod>,
    pre_binder: PreBinder,
    /// The node at which the next search starts (upstream: nextStartNodeIndex).
    next_start_node: usize,
    pub api: DynamicClient,
    pub clock: Clock,
    pub rng: Rng,
    pub recorder: EventRecorder,
    pub event_series: EventSeriesCache,
    pub status_writer: PodStatusWriter,
    pub sender: Sender<SchedulerMessage>,
    pub metrics: SchedulerMetrics,
    /// The pods that Permit plugins delay.
    pub waiting_pods: WaitingPods,
    pub is_synced: bool,
    gauges_updated: Option<Instant>,
    /// Whether something changed since.
    are_gauges_stale: bool,
    /// Preemptors of this cycle whose victims are being deleted.
    pub preemptors: Vec<Str>,
}

/// A pod in its binding cycle.
pub(crate) struct BindingPod {
    pub queued_pod: QueuedPodInfo,
    /// When the scheduling attempt began.
    pub attempt_started: Instant,
    /// Its PreBind steps.
    pub steps: Vec<PreBindStep>,
    /// Whether its binding cycle may wait long, for volumes or permission.
    may_wait: bool,
}

/// Why a pod was not scheduled.
pub(crate) enum SchedulingFailure {
    /// The cluster has no nodes.
    NoNodes,
    /// No node fits; `nominate` is the new nomination.
    FitError {
        diagnosis: Diagnosis,
        nominate: Option<Str>,
    },
    /// A plugin at Reserve or Permit rejected the pod on the node that was selected.
    Rejected { plugin: Name, message: String },
    /// An internal error.
    Error(String),
}

impl From<BindFailure> for SchedulingFailure {
    fn from(failure: BindFailure) -> SchedulingFailure {
        match failure {
            BindFailure::Rejected(PermitFailure { plugin, message }) => {
                SchedulingFailure::Rejected { plugin, message }
            }
            BindFailure::Error(error) => SchedulingFailure::Error(error),
        }
    }
}

/// The node for a pod, and what must happen before the pod is bound.
struct SelectedNode {
    slot: Slot,
    steps: Vec<PreBindStep>,
    reserved: ReservedPlugins,
}

impl Scheduler {
    pub(crate) fn new(
        options: &Options,
        extenders: Vec<Extender>,
        sender: Sender<SchedulerMessage>,
        metrics: SchedulerMetrics,
    ) -> Scheduler {
        let Options {
            api,
            clock,
            rng: chance,
            host,
            configuration,
            ..
        } = options.clone();
        Scheduler {
            cluster: ClusterState::default(),
            queue: SchedulingQueue::new(configuration.backoff_durations),
            profiles: configuration
                .profiles
                .iter()
                .map(|one| (one.name.clone(), one.clone()))
                .collect(),
            extenders: extenders.into(),
            nodes: options.informers.objects(&NODES).lister(),
            binding_pods: HashMap::default(),
            pre_binder: PreBinder::new(api.clone(), options.clock.clone(), &options.informers),
            next_start_node: 0,
            recorder: EventRecorder::new(api.clone(), clock.clone(), host.into()),
            event_series: EventSeriesCache::default(),
            status_writer: PodStatusWriter::new(api.clone(), clock.clone(), sender.clone()),
            api,
            clock,
            rng: chance,
            sender,
            metrics,
            waiting_pods: configuration.waiting_pods.clone(),
            is_synced: false,
            gauges_updated: None,
            are_gauges_stale: true,
            preemptors: Vec::new(),
        }
    }

    /// Schedules pods until the channel is closed.
    pub(crate) async fn run(mut self, mut inbox: Receiver<SchedulerMessage>) {
        let mut n_tried = 0;
        loop {
            while let Ok(message) = inbox.try_recv() {
                self.on_message(message);
                self.are_gauges_stale = true;
            }
            self.flush();
            if let Some(queued_pod) = self.next_pod() {
                self.schedule_one(queued_pod).await;
                self.are_gauges_stale = true;
                n_tried += 1;
                if n_tried % ATTEMPTS_PER_TURN == 0 {
                    tokio::task::yield_now().await;
                }
                continue;
            }
            let gauges_due = self.update_gauges();
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(message) => {
                        self.on_message(message);
                        self.are_gauges_stale = true;
                    }
                    None => return,
                },
                () = sleep_until(gauges_due), if self.are_gauges_stale => {}
                () = sleep_until(self.queue.next_deadline()) => self.event_series.prune(&self.recorder),
            }
        }
    }

    fn next_pod(&mut self) -> Option<QueuedPodInfo> {
        // Pods that may wait long do not count against the limit.
        let n_quick = self.binding_pods.values().filter(|pod| !pod.may_wait);
        let may = self.is_synced
            && (self.binding_pods.len() < MAX_BINDING_PODS || n_quick.count() < MAX_BINDING_PODS);
        if may { self.queue.pop() } else { None }
    }

    /// Updates gauges that are stale, at most once per interval. Returns when the next update is due.
    fn update_gauges(&mut self) -> Instant {
        let now = Instant::now();
        let due = self.gauges_updated.map_or(now, |at| at + GAUGE_INTERVAL);
        if !self.are_gauges_stale || now < due {
            return due;
        }
        self.gauges_updated = Some(now);
        self.are_gauges_stale = false;
        let cache = &self.cluster.cache;
        self.metrics.set_gauges(GaugeValues {
            depths: self.queue.depths(),
            incoming: self.queue.incoming().clone(),
            n_nodes: cache.node_order().len(),
            n_pods: cache.n_pods(),
            n_assumed: self.binding_pods.len(),
            dropped_events: self.recorder.dropped(),
            rejected: self.queue.unschedulable_by_plugin(),
        });
        now + GAUGE_INTERVAL
    }

    /// One scheduling cycle (upstream: ScheduleOne).
    async fn schedule_one(&mut self, queued_pod: QueuedPodInfo) {
        let attempt_started = Instant::now();
        let Some(profile) = self.profiles.get(&queued_pod.pod.scheduler).cloned() else {
            return;
        };
        if queued_pod.pod.is_terminating {
            let PodInfo {
                namespace, name, ..
            } = &*queued_pod.pod;
            let text = format!("skip schedule deleting pod: {namespace}/{name}");
            return self.record_failure(&profile, &queued_pod.pod, text);
        }
        self.cluster.cache.refresh_node_order();
        let span = tracing::debug_span!(
            "reconcile",
            controller = "kube-scheduler",
            key = %queued_pod.pod.key(),
            outcome = tracing::field::Empty,
        );
        let found = self
            .schedule_pod(&profile, &queued_pod.pod)
            .instrument(span.clone());
        match found.await {
            Ok(selected) => {
                self.metrics.observe_algorithm(attempt_started.elapsed());
                span.record("outcome", AttemptResult::Scheduled.as_str());
                self.assume_and_bind(&profile, (queued_pod, attempt_started), selected);
            }
            Err(failure) => {
                let outcome = if matches!(failure, SchedulingFailure::Error(_)) {
                    AttemptResult::Error
                } else {
                    AttemptResult::Unschedulable
                };
                self.metrics
                    .observe_attempt(outcome, &profile.name, attempt_started.elapsed());
                span.record("outcome", outcome.as_str());
                self.handle_scheduling_failure(&profile, queued_pod, failure);
            }
        }
        let duration_us = attempt_started.elapsed().as_micros() as u64;
        span.in_scope(|| tracing::debug!(duration_us, "scheduling attempt is over"));
    }

    /// The best node for a pod (upstream: schedulePod).
    async fn schedule_pod(
        &mut self,
        profile: &Profile,
        pod: &Arc<PodInfo>,
    ) -> Result<SelectedNode, SchedulingFailure> {
        let n_nodes = self.cluster.cache.node_order().len();
        if n_nodes == 0 {
            return Err(SchedulingFailure::NoNodes);
        }
        let mut diagnosis = Diagnosis::default();
        let state = run_pre_filters(profile, pod, &mut self.cluster, &mut diagnosis)
            .map_err(SchedulingFailure::Error)?;
        let mut feasible = Vec::new();
        if diagnosis.pre_filter_message.is_empty() {
            feasible = self
                .find_nodes_that_fit_pod(profile, pod, &state, &mut diagnosis)
                .await
                .map_err(SchedulingFailure::Error)?;
        }
        let slot = match feasible.as_slice() {
            [] => {
                let started = Instant::now();
                let failure = self.run_post_filter(profile, pod, &state, diagnosis).await;
                let code = match &failure {
                    SchedulingFailure::FitError {
                        nominate: Some(node),
                        ..
                    } if !node.is_empty() => StatusCode::Success,
                    _ => StatusCode::Unschedulable,
                };
                let took = started.elapsed();
                let metrics = &profile.metrics;
                metrics.observe_point(ExtensionPoint::PostFilter, code, took);
                return Err(failure);
            }
            [only] => *only,
            nodes => {
                let mut scores = prioritize_nodes(profile, pod, &state, &mut self.cluster, nodes);
                self.score_with_extenders(pod, nodes, &mut scores).await;
                select_host(nodes, &scores, &self.rng).ok_or(SchedulingFailure::NoNodes)?
            }
        };
        let node = self.cluster.cache.node(slot);
        let steps = state
            .reserve(node, &self.cluster)
            .map_err(SchedulingFailure::Error)?;
        let reserved = ReservedPlugins::reserve(profile, pod, node.name(), &state)
            .map_err(SchedulingFailure::from)?;
        Ok(SelectedNode {
            slot,
            steps,
            reserved,
        })
    }

    /// The nodes that fit a pod: its nominated node, or enough to choose from (upstream:
    /// findNodesThatFitPod).
    async fn find_nodes_that_fit_pod(
        &mut self,
        profile: &Profile,
        pod: &PodInfo,
        state: &CycleState,
        diagnosis: &mut Diagnosis,
    ) -> Result<Vec<Slot>, String> {
        if let Some(slot) = self.evaluate_nominated_node(pod, state) {
            let left = self.filter_with_extenders(pod, vec![slot], diagnosis).await;
            if let Ok([slot]) = left.as_deref() {
                return Ok(vec![*slot]);
            }
        }
        let n_nodes = self.cluster.cache.node_order().len();
        let n_looked_at = state.only_nodes.as_ref().map_or(n_nodes, Vec::len);
        let filters_or_scores = |extender: &Extender| {
            !extender.options.filter.is_empty() || !extender.options.prioritize.is_empty()
        };
        let is_one_enough = profile.scores.is_empty()
            && profile.custom_scores.is_empty()
            && !self.extenders.iter().any(filters_or_scores);
        let enough = if is_one_enough {
            1
        } else {
            num_feasible_nodes_to_find(profile.percentage_of_nodes_to_score, n_looked_at)
        };
        let started = Instant::now();
        let feasible = self.filter_run(pod, state).find_nodes_that_pass_filters(
            self.next_start_node,
            enough,
            diagnosis,
        );
        // Kubernetes: over all nodes, and Success even if none fits (schedule_one.go).
        let (point, took) = (ExtensionPoint::Filter, started.elapsed());
        profile
            .metrics
            .observe_point(point, StatusCode::Success, took);
        let feasible = feasible?;
        self.next_start_node =
            (self.next_start_node + feasible.len() + diagnosis.rejections.len()) % n_nodes;
        self.filter_with_extenders(pod, feasible, diagnosis).await
    }

    /// The node that is nominated for a pod, if the pod fits (upstream: evaluateNominatedNode).
    fn evaluate_nominated_node(&self, pod: &PodInfo, state: &CycleState) -> Option<Slot> {
        let node = self.cluster.cache.node_by_name(&pod.nominated_node)?;
        let allowed = state
            .only_nodes
            .as_ref()
            .is_none_or(|only| only.contains(&node.slot));
        let rejection = self
            .filter_run(pod, state)
            .run_filters_with_nominated_pods(node);
        (allowed && rejection.is_none()).then_some(node.slot)
    }

    fn filter_run<'a>(&'a self, pod: &'a PodInfo, state: &'a CycleState) -> FilterRun<'a> {
        FilterRun {
            state,
            pod,
            cluster: &self.cluster,
            nominated: &self.queue.nominated,
        }
    }

    /// Assumes the pod on a node and starts its binding cycle.
    fn assume_and_bind(
        &mut self,
        profile: &Profile,
        (queued_pod, attempt_started): (QueuedPodInfo, Instant),
        selected: SelectedNode,
    ) {
        let SelectedNode {
            slot,
            steps,
            reserved,
        } = selected;
        let pod = queued_pod.pod.clone();
        let node = self.cluster.cache.node(slot).name().clone();
        self.cluster.cache.assume(pod.clone(), slot);
        self.queue.nominated.remove(&pod.uid);
        reserve::assume(&steps, &mut self.cluster);
        self.binding_pods.insert(
            pod.uid.clone(),
            BindingPod {
                queued_pod,
                attempt_started,
                steps: steps.clone(),
                may_wait: !steps.is_empty() || !reserved.waits.is_empty(),
            },
        );
        let permit = (!reserved.waits.is_empty())
            .then(|| self.waiting_pods.add(&pod, &node, &reserved.waits));
        let bind = BindingCycle {
            api: self.api.clone(),
            recorder: self.recorder.clone(),
            sender: self.sender.clone(),
            scheduler: profile.name.clone(),
            pod,
            node,
            steps,
            reserved,
            permit,
            pre_binder: self.pre_binder.clone(),
            extenders: self.extenders.clone(),
            metrics: profile.metrics.clone(),
        };
        tokio::spawn(bind.run());
    }

    /// Puts a pod back into the queue, and reports why (upstream: handleSchedulingFailure).
    pub(crate) fn handle_scheduling_failure(
        &mut self,
        profile: &Profile,
        queued_pod: QueuedPodInfo,
        failure: SchedulingFailure,
    ) {
        let n_nodes = self.cluster.cache.node_order().len();
        let (reason, message, unschedulable_plugins, nominate) = match failure {
            SchedulingFailure::NoNodes => {
                let message = "no nodes available to schedule pods".to_string();
                (
                    "Unschedulable",
                    message,
                    PluginNames::default(),
                    Some(Str::default()),
                )
            }
            SchedulingFailure::FitError {
                diagnosis,
                nominate,
            } => (
                "Unschedulable",
                diagnosis.message(n_nodes),
                diagnosis.unschedulable_plugins,
                nominate,
            ),
            SchedulingFailure::Rejected { plugin, message } => (
                "Unschedulable",
                format!("0/1 nodes are available: 1 {message}."),
                [plugin].into_iter().collect(),
                Some(Str::default()),
            ),
            SchedulingFailure::Error(message) => (
                "SchedulerError",
                message,
                PluginNames::default(),
                Some(Str::default()),
            ),
        };
        let pod = queued_pod.pod.clone();
        self.queue
            .add_unschedulable(queued_pod, unschedulable_plugins);
        self.queue.nominated.add(&pod, nominate.as_ref());
        for uid in std::mem::take(&mut self.preemptors) {
            self.queue.hold(&uid);
        }
        self.record_failure(profile, &pod, message.clone());
        self.status_writer.send(PodStatusUpdate {
            pod,
            condition: Some(UnscheduledCondition { reason, message }),
            nominated: nominate,
        });
    }

    fn record_failure(&mut self, profile: &Profile, pod: &PodInfo, text: String) {
        let note = EventNote {
            severity: Severity::Warning,
            reason: "FailedScheduling",
            action: "Scheduling",
            text,
        };
        self.recorder
            .record(&mut self.event_series, &profile.name, pod, note);
    }
}
