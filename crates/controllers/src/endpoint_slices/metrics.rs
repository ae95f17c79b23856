//! Metrics of the EndpointSlice controller, under upstream's names (endpointslice/metrics).

use std::collections::{BTreeMap, HashMap};

use mizzen_sdk::Key;
use mizzen_sdk::metrics::{Collector, CounterVec, Families, HistogramVec, exponential};
use parking_lot::Mutex;

/// Upper bounds of the number of endpoints.
const ENDPOINT_BOUNDS: [f64; 15] = exponential(2.0, 2.0);

#[derive(Debug)]
pub(super) struct EndpointSliceMetrics {
    services: Mutex<HashMap<Key, ServiceSlices>>,
    endpoints_added: HistogramVec<0>,
    endpoints_removed: HistogramVec<0>,
    changes: CounterVec<1>,
    syncs: CounterVec<1>,
}

/// The endpoints and slices of a service, of all families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServiceSlices {
    pub n_endpoints: usize,
    pub n_slices: usize,
    /// The number of slices if all were full.
    pub n_slices_desired: usize,
    /// `spec.trafficDistribution`.
    pub traffic_distribution: String,
}

/// The changes of a service's slices in one sync.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SyncCounts {
    pub endpoints_added: usize,
    pub endpoints_removed: usize,
    pub created: usize,
    pub updated: usize,
    pub deleted: usize,
}

impl Default for EndpointSliceMetrics {
    fn default() -> EndpointSliceMetrics {
        EndpointSliceMetrics {
            services: Mutex::default(),
            endpoints_added: HistogramVec::new(
                "endpoint_slice_controller_endpoints_added_per_sync",
                "Endpoints that a sync of a Service added.",
                [],
                &ENDPOINT_BOUNDS,
            ),
            endpoints_removed: HistogramVec::new(
                "endpoint_slice_controller_endpoints_removed_per_sync",
                "Endpoints that a sync of a Service removed.",
                [],
                &ENDPOINT_BOUNDS,
            ),
            changes: CounterVec::new(
                "endpoint_slice_controller_changes",
                "Changes of EndpointSlices.",
                ["operation"],
            ),
            syncs: CounterVec::new(
                "endpoint_slice_controller_syncs",
                "Syncs of Services.",
                ["result"],
            ),
        }
    }
}

impl EndpointSliceMetrics {
    pub(super) fn count_sync(&self, is_done: bool) {
        let result = if is_done { "success" } else { "error" };
        self.syncs.add([result.into()], 1);
    }

    /// Observes the changes of one address family.
    pub(super) fn observe_changes(&self, counts: SyncCounts) {
        self.endpoints_added
            .observe([], counts.endpoints_added as f64);
        self.endpoints_removed
            .observe([], counts.endpoints_removed as f64);
        for (operation, n) in [
            ("create", counts.created),
            ("update", counts.updated),
            ("delete", counts.deleted),
        ] {
            if n > 0 {
                self.changes.add([operation.into()], n as u64);
            }
        }
    }

    pub(super) fn set_service(&self, key: &Key, slices: ServiceSlices) {
        self.services.lock().insert(key.clone(), slices);
    }

    pub(super) fn forget(&self, key: &Key) {
        self.services.lock().remove(key);
    }
}

impl Collector for EndpointSliceMetrics {
    fn collect(&self, families: &mut Families) {
        let (mut sum, mut by_distribution) = (ServiceSlices::default(), BTreeMap::new());
        for slices in self.services.lock().values() {
            sum.n_endpoints += slices.n_endpoints;
            sum.n_slices += slices.n_slices;
            sum.n_slices_desired += slices.n_slices_desired;
            if !slices.traffic_distribution.is_empty() {
                *by_distribution
                    .entry(slices.traffic_distribution.clone())
                    .or_insert(0_usize) += 1;
            }
        }
        for (name, help, n) in [
            (
                "endpoint_slice_controller_endpoints_desired",
                "Endpoints of all Services.",
                sum.n_endpoints,
            ),
            (
                "endpoint_slice_controller_num_endpoint_slices",
                "EndpointSlices of all Services.",
                sum.n_slices,
            ),
            (
                "endpoint_slice_controller_desired_endpoint_slices",
                "EndpointSlices of all Services if all were full.",
                sum.n_slices_desired,
            ),
        ] {
            families.gauge(name, help).add(&[], n);
        }
        let services = families.gauge(
            "endpoint_slice_controller_services_count_by_traffic_distribution",
            "Services by trafficDistribution.",
        );
        for (distribution, n) in &by_distribution {
            services.add(&[("traffic_distribution", distribution)], *n);
        }
        self.endpoints_added.collect(families);
        self.endpoints_removed.collect(families);
        self.changes.collect(families);
        self.syncs.collect(families);
    }
}
