//! Custom metrics of an aggregated API server.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use kube::Client;
use kube::client::Body as Sent;
use mizzen_apiserver::{Body, InProcess, User};
use mizzen_sdk::resource::HORIZONTAL_POD_AUTOSCALERS;
use mizzen_testing::{Builder, Cluster};
use mizzen_value::{Value, json, value};
use tower_service::Service;

use crate::autoscaler::{
    CONTROLLERS, SECOND, autoscaler, conditions, events, pods, replicas, target,
};
use crate::pods::LONG_AGO;
use crate::start;

const ROOT: &str = "/apis/custom.metrics.k8s.io";

/// A transport to our server and to the aggregated one behind it.
#[derive(Clone)]
struct AggregatedTransport {
    ours: InProcess,
    answer: fn(&str) -> Option<Value>,
}

impl Service<Request<Sent>> for AggregatedTransport {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <InProcess as Service<Request<Sent>>>::Future;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Sent>) -> Self::Future {
        let path = request
            .uri()
            .path_and_query()
            .map(|path| path.as_str())
            .unwrap_or_default();
        match (self.answer)(path) {
            Some(answer) => Box::pin(ready(Ok(Response::new(Body::from(json::to_string(
                &answer,
            )))))),
            None => self.ours.call(request),
        }
    }
}

/// A cluster whose aggregated server answers so.
async fn cluster(answer: fn(&str) -> Option<Value>) -> Cluster {
    let cluster = start(&[]).await;
    let server = cluster.server().clone();
    let clients = Arc::new(move |_: &str| {
        let ours = server.in_process(User::master("admin"), "kube-controller-manager");
        Client::new(AggregatedTransport { ours, answer }, "default")
    });
    let with_metrics = |builder: Builder| {
        let builder = builder.controllers(CONTROLLERS);
        builder.tune_controllers(move |options| options.clients = clients.clone())
    };
    cluster.restart_with(with_metrics).await;
    cluster
}

fn metric(object: &str, value: &str) -> Value {
    value!({"describedObject": {"name": (object)}, "timestamp": (LONG_AGO), "value": (value)})
}

/// Requests of pods, and hits of a service.
fn answer(path: &str) -> Option<Value> {
    let path = path.strip_prefix(ROOT)?;
    Some(match path {
        "" => {
            value!({"preferredVersion": {"version": "v1beta2"}, "versions": [{"version": "v1beta2"}]})
        }
        "/v1beta2/namespaces/default/pods/*/requests?labelSelector=app%3Dweb&metricLabelSelector=verb%3Dget" =>
        {
            value!({"items": [(metric("p0", "20")), (metric("p1", "10"))]})
        }
        "/v1beta2/namespaces/default/services/web/hits" => {
            value!({"items": [(metric("web", "150"))]})
        }
        other => panic!("unexpected request for {other}"),
    })
}

async fn measured(cluster: &Cluster) -> Value {
    cluster
        .object(&HORIZONTAL_POD_AUTOSCALERS, "default/h")
        .await["status"]["currentMetrics"][0]
        .clone()
}

#[tokio::test(start_paused = true)]
async fn pods_may_have_metrics_of_any_name() {
    let cluster = cluster(answer).await;
    target(&cluster, 2).await;
    pods(&cluster, 0..2).await;
    let metric = "{name: requests, selector: {matchLabels: {verb: get}}}";
    let wanted = "{type: AverageValue, averageValue: '10'}";
    autoscaler(
        &cluster,
        &format!("metrics: [{{type: Pods, pods: {{metric: {metric}, target: {wanted}}}}}]"),
    )
    .await;
    cluster.advance(16 * SECOND).await;
    assert_eq!(replicas(&cluster).await, 3);
    let metric = value!({"name": "requests", "selector": {"matchLabels": {"verb": "get"}}});
    let pods = value!({"metric": (metric), "current": {"averageValue": "15"}});
    assert_eq!(
        measured(&cluster).await,
        value!({"type": "Pods", "pods": (pods)})
    );
    let message = "New size: 3; reason: pods metric requests above target";
    assert_eq!(events(&cluster, "SuccessfulRescale").await, [message]);
}

#[tokio::test(start_paused = true)]
async fn objects_may_have_metrics_of_any_name() {
    let cluster = cluster(answer).await;
    target(&cluster, 2).await;
    pods(&cluster, 0..2).await;
    let described = "describedObject: {apiVersion: v1, kind: Service, name: web}";
    let spec =
        format!("{{{described}, metric: {{name: hits}}, target: {{type: Value, value: '100'}}}}");
    autoscaler(
        &cluster,
        &format!("metrics: [{{type: Object, object: {spec}}}]"),
    )
    .await;
    cluster.advance(16 * SECOND).await;
    assert_eq!(replicas(&cluster).await, 3);
    let described = value!({"kind": "Service", "name": "web", "apiVersion": "v1"});
    let object = value!({"metric": {"name": "hits"}, "current": {"value": "150"}, "describedObject": (described)});
    assert_eq!(
        measured(&cluster).await,
        value!({"type": "Object", "object": (object)})
    );
    let message = "New size: 3; reason: Service metric hits above target";
    assert_eq!(events(&cluster, "SuccessfulRescale").await, [message]);
}

#[tokio::test(start_paused = true)]
async fn the_custom_metrics_api_may_be_missing() {
    let cluster = cluster(|_| None).await;
    target(&cluster, 2).await;
    pods(&cluster, 0..2).await;
    let spec = "{metric: {name: requests}, target: {type: AverageValue, averageValue: '10'}}";
    autoscaler(
        &cluster,
        &format!("metrics: [{{type: Pods, pods: {spec}}}]"),
    )
    .await;
    cluster.advance(16 * SECOND).await;
    assert_eq!(replicas(&cluster).await, 2);
    assert_eq!(
        conditions(&cluster).await[1],
        "ScalingActive False FailedGetPodsMetric"
    );
    let why = "unable to get metric requests: unable to fetch metrics from custom metrics API: \
               no custom metrics API (custom.metrics.k8s.io) registered";
    assert_eq!(events(&cluster, "FailedGetPodsMetric").await, [why]);
}
