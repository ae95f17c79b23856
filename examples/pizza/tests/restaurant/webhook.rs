//! The conversion webhook answers reviews.

use http::Request;
use http_body_util::Full;
use hyper::body::Bytes;
use mizzen_value::{Value, json, value};
use pizza::GROUP;

/// The response to a review of a pizza in `v1alpha1`.
async fn review(wanted: &str) -> Value {
    let pizza = value!({
        "apiVersion": (format!("{GROUP}/v1alpha1")), "kind": "Pizza", "metadata": { "name": "ham" },
        "spec": { "toppings": ["ham", "ham"] },
    });
    let review = value!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {
            "uid": "7", "desiredAPIVersion": (format!("{GROUP}/{wanted}")), "objects": (vec![pizza]),
        },
    });
    let path = format!("/convert/pizzas.{GROUP}");
    let manifest = include_str!("../../manifests/definition.yaml");
    assert!(manifest.contains(&path), "the manifest names the path");
    let request = Request::post(path).header("content-type", "application/json");
    let body = Full::<Bytes>::from(json::to_string(&review));
    let server = pizza::webhook::server().unwrap();
    let response = server.handle(request.body(body).unwrap()).await;
    assert_eq!(response.status(), 200);
    let review = json::parse(response.body()).unwrap();
    assert_eq!(review["response"]["uid"].str(), "7");
    review["response"].clone()
}

#[tokio::test]
async fn a_review_is_answered_in_the_desired_version() {
    let response = review("v1beta1").await;
    assert_eq!(response["result"]["status"].str(), "Success");
    let pizza = &response["convertedObjects"].list()[0];
    assert_eq!(pizza["apiVersion"].str(), format!("{GROUP}/v1beta1"));
    assert_eq!(pizza["spec"]["toppings"].list()[0]["quantity"].int(), 2);
}

#[tokio::test]
async fn unknown_versions_are_rejected() {
    let response = review("v7").await;
    assert_eq!(response["result"]["status"].str(), "Failure");
    let message = response["result"]["message"].str();
    let expected = format!("cannot convert {GROUP}/v1alpha1 to {GROUP}/v7");
    assert!(message.contains(&expected), "{message}");
}
