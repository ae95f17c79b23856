//! The controllers of kube-controller-manager: a folder for each, with pure planning and a thin
//! `reconcile`. The controllers of workloads are those of `mizzen_workloads`.
//!
//! A controller reads informers, decides, and writes through the API like any client. `reconcile`
//! is level-triggered: it never depends on the event that enqueued the key.
//!
//! ```no_run
//! # async fn example(client: kube::Client) {
//! use std::sync::Arc;
//!
//! use mizzen_controllers::{Options, start};
//!
//! // All controllers share one client; the argument is the controller's name.
//! let controllers = start(Options::new(Arc::new(move |_: &str| client.clone())));
//! controllers.synced().await;
//! # }
//! ```
//!
//! Invariant: nothing here reads the wall clock or random numbers directly; [`ControllerContext`]
//! has both.

mod autoscaler;
mod bootstrap;
mod certificates;
mod cluster_role_aggregation;
mod context;
mod device_taint_eviction;
mod endpoint_slice_mirroring;
mod endpoint_slices;
mod endpoints;
mod ephemeral_volume;
mod eviction;
mod garbage_collector;
mod legacy_tokens;
mod metadata_informers;
mod namespace;
mod node_ipam;
mod node_lifecycle;
mod pod_gc;
mod pod_index;
mod policy_status;
mod protection;
mod resource_claim;
mod resource_quota;
mod root_ca;
mod run;
mod service_account_tokens;
mod service_accounts;
mod service_cidrs;
mod service_load_balancer;
mod services;
mod storage_version_migration;
mod taint;
mod taint_eviction;
mod ttl;
mod volume_binder;

use mizzen_workloads::{
    cronjob, daemonset, deployment, disruption, job, replicaset, statefulset, ttl_after_finished,
};

pub use certificates::{CertificateSigner, SigningRequest};
pub use context::{ControllerContext, Options, SignToken};
pub use mizzen_sdk::controller::{Action, Clients, Controller, Error, Reconcile};
pub use node_ipam::{NodeMasks, RangeError, check_range};
pub use node_lifecycle::NodeMonitor;
pub use run::{Handle, names, start};

/// Creates a controller.
type StartFn = fn(&ControllerContext) -> Controller;

/// Every controller by upstream's name.
const CONTROLLERS: &[(&str, StartFn)] = &[
    ("bootstrap-signer-controller", bootstrap::start_signer),
    (
        "certificatesigningrequest-approving-controller",
        certificates::start_approving,
    ),
    (
        "certificatesigningrequest-cleaner-controller",
        certificates::start_cleaning,
    ),
    (
        "certificatesigningrequest-signing-controller",
        certificates::start_signing,
    ),
    (
        "clusterrole-aggregation-controller",
        cluster_role_aggregation::start,
    ),
    ("cronjob-controller", |context| cronjob::start(context)),
    ("daemonset-controller", |context| daemonset::start(context)),
    ("deployment-controller", |context| {
        deployment::start(context)
    }),
    (
        "device-taint-eviction-controller",
        device_taint_eviction::start,
    ),
    ("disruption-controller", |context| {
        disruption::start(context)
    }),
    ("endpoints-controller", endpoints::start),
    ("endpointslice-controller", endpoint_slices::start),
    (
        "endpointslice-mirroring-controller",
        endpoint_slice_mirroring::start,
    ),
    ("ephemeral-volume-controller", ephemeral_volume::start),
    ("garbage-collector-controller", garbage_collector::start),
    ("horizontal-pod-autoscaler-controller", autoscaler::start),
    ("job-controller", |context| job::start(context)),
    (
        "legacy-serviceaccount-token-cleaner-controller",
        legacy_tokens::start,
    ),
    ("namespace-controller", namespace::start),
    ("node-ipam-controller", node_ipam::start),
    ("node-lifecycle-controller", node_lifecycle::start),
    ("persistentvolume-binder-controller", volume_binder::start),
    (
        "persistentvolume-expander-controller",
        volume_binder::start_expander,
    ),
    (
        "persistentvolume-protection-controller",
        protection::start_volumes,
    ),
    (
        "persistentvolumeclaim-protection-controller",
        protection::start_claims,
    ),
    ("pod-garbage-collector-controller", pod_gc::start),
    ("replicaset-controller", |context| {
        replicaset::start_replica_sets(context)
    }),
    ("replicationcontroller-controller", |context| {
        replicaset::start_replication_controllers(context)
    }),
    ("resourceclaim-controller", resource_claim::start),
    ("resourcequota-controller", resource_quota::start),
    ("root-ca-certificate-publisher-controller", root_ca::start),
    ("service-cidr-controller", service_cidrs::start),
    ("service-lb-controller", service_load_balancer::start),
    ("serviceaccount-controller", service_accounts::start),
    (
        "serviceaccount-token-controller",
        service_account_tokens::start,
    ),
    ("statefulset-controller", |context| {
        statefulset::start(context)
    }),
    (
        "storage-version-migrator-controller",
        storage_version_migration::start,
    ),
    ("taint-eviction-controller", taint_eviction::start),
    ("token-cleaner-controller", bootstrap::start_cleaner),
    ("ttl-after-finished-controller", |context| {
        ttl_after_finished::start(context)
    }),
    ("ttl-controller", ttl::start),
    (
        "validatingadmissionpolicy-status-controller",
        policy_status::start,
    ),
    (
        "volumeattributesclass-protection-controller",
        protection::start_attributes_classes,
    ),
];
