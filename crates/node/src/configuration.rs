//! The KubeletConfiguration that describes a node, for `/configz`: the values that the agent has.
//! Fields of what it does not do are left out.

use std::time::Duration;

use mizzen_value::time::duration_text;
use mizzen_value::{Value, value};

use crate::Options;
use crate::eviction::EvictionConfig;
use crate::nodes::{LEASE_DURATION, STATUS_INTERVAL};
use crate::server::Serving;
use crate::shutdown::ShutdownConfig;

/// The configuration of nodes with these options.
pub(crate) fn kubelet_configuration(options: &Options, serving: Option<&Serving>) -> Value {
    let (reviews, eviction) = (&options.reviews, &options.eviction);
    let mut configuration = value!({
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "enableServer": (serving.is_some()),
        "authentication": {
            "x509": {},
            "webhook": { "enabled": true, "cacheTTL": (duration(reviews.token_ttl)) },
            "anonymous": { "enabled": false }
        },
        "authorization": {
            "mode": "Webhook",
            "webhook": {
                "cacheAuthorizedTTL": (duration(reviews.authorized_ttl)),
                "cacheUnauthorizedTTL": (duration(reviews.unauthorized_ttl))
            }
        },
        "enableDebuggingHandlers": true,
        "enableSystemLogHandler": false,
        "enableProfilingHandler": false,
        "enableDebugFlagsHandler": false,
        "registerNode": true,
        "streamingConnectionIdleTimeout": (duration(options.streaming_idle_timeout)),
        "nodeStatusReportFrequency": (duration(STATUS_INTERVAL)),
        "nodeLeaseDurationSeconds": (LEASE_DURATION.as_secs() as i64),
        "maxPods": (options.capacity["pods"].str().parse::<i64>().unwrap_or_default()),
        "evictionPressureTransitionPeriod": (duration(eviction.pressure_transition_period)),
        "evictionMaxPodGracePeriod": (eviction.max_pod_grace_period.as_secs() as i64)
    });
    if let Some(address) = serving.and_then(Serving::address) {
        configuration.set("address", address.ip().to_string());
        configuration.set("port", i64::from(address.port()));
    }
    if let Some(static_pods) = &options.static_pods {
        configuration.set("staticPodPath", static_pods.path.display().to_string());
    }
    // What flags reserve for Kubernetes and for the system is one sum here.
    if !options.reserved.is_empty() {
        configuration.set("kubeReserved", options.reserved.clone());
    }
    set_thresholds(&mut configuration, eviction);
    set_shutdown(&mut configuration, &options.shutdown);
    for (field, value) in options.runtime.configuration().entries() {
        configuration.set(field, value.clone());
    }
    configuration
}

fn set_thresholds(configuration: &mut Value, eviction: &EvictionConfig) {
    let known = eviction.thresholds.iter();
    for threshold in known.filter(|threshold| threshold.signal.is_configurable()) {
        let (signal, value) = (threshold.signal.name(), threshold.value.to_string());
        let field = match threshold.is_hard() {
            true => "evictionHard",
            false => "evictionSoft",
        };
        configuration.entry(field).set(signal, value);
        if !threshold.is_hard() {
            let period = duration(threshold.grace_period);
            configuration
                .entry("evictionSoftGracePeriod")
                .set(signal, period);
        }
        if let Some(reclaim) = threshold.min_reclaim {
            configuration
                .entry("evictionMinimumReclaim")
                .set(signal, reclaim.to_string());
        }
    }
}

fn set_shutdown(configuration: &mut Value, shutdown: &ShutdownConfig) {
    let periods = shutdown.grace_periods.iter();
    let periods: Vec<Value> = periods
        .map(|period| {
            value!({
                "priority": (i64::from(period.priority)),
                "shutdownGracePeriodSeconds": (i64::from(period.seconds))
            })
        })
        .collect();
    if !periods.is_empty() {
        configuration.set("shutdownGracePeriodByPodPriority", periods);
    }
}

/// A duration as Go writes it.
pub(crate) fn duration(duration: Duration) -> Value {
    duration_text(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::parse_thresholds;

    #[test]
    fn thresholds_are_written_as_they_are_read() {
        let thresholds = parse_thresholds(
            "memory.available<100Mi,nodefs.available<15%",
            "memory.available<1Gi",
            "memory.available=1m30s",
            "nodefs.available=500Mi",
        );
        let eviction = EvictionConfig {
            thresholds: thresholds.unwrap(),
            ..EvictionConfig::default()
        };
        let mut configuration = Value::object();
        set_thresholds(&mut configuration, &eviction);
        let expected = value!({
            "evictionHard": { "memory.available": "100Mi", "nodefs.available": "15%" },
            "evictionMinimumReclaim": { "nodefs.available": "500Mi" },
            "evictionSoft": { "memory.available": "1Gi" },
            "evictionSoftGracePeriod": { "memory.available": "1m30s" }
        });
        assert_eq!(configuration, expected);
    }
}
