//! Round trips: what a conversion loses.

use std::fmt::Debug;

use kube::CustomResourceExt;
use mizzen_object::patch::json_diff;
use mizzen_value::{Value, json};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::arbitrary::arbitrary;
use super::{ConvertError, ConvertTo};

/// How many objects are converted in each direction.
const CASES: u32 = 256;

/// Tests that arbitrary objects of a version survive the way to the hub and back, and objects of the
/// hub the way to the version and back. Kubernetes demands both: an object that is read in one
/// version and written again must not lose what another version said.
///
/// The objects are the same in each run. The test panics with the smallest object that fails, and
/// what is lost.
///
/// ```
/// # use kube::CustomResource;
/// # use mizzen_sdk::convert::Convert;
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// # mod v2 {
/// #   use super::*;
/// #   #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
/// #   #[kube(group = "shop.example.com", version = "v2", kind = "Oven", namespaced)]
/// #   pub struct OvenSpec { pub heat: u32 }
/// # }
/// # mod v1 {
/// #   use super::*;
/// #   #[derive(CustomResource, Convert, Serialize, Deserialize, JsonSchema, Clone, Debug)]
/// #   #[kube(group = "shop.example.com", version = "v1", kind = "Oven", namespaced, derive = "Convert")]
/// #   #[kube(attr = "convert(hub = super::v2::Oven)")]
/// #   #[convert(hub = super::v2::OvenSpec)]
/// #   pub struct OvenSpec { #[convert(rename = "heat")] pub temperature: u32 }
/// # }
/// // #[test]
/// fn ovens_survive_conversion() {
///     mizzen_sdk::convert::check_round_trip::<v1::Oven, v2::Oven>();
/// }
/// # fn main() { ovens_survive_conversion(); }
/// ```
#[track_caller]
pub fn check_round_trip<S, H>()
where
    S: CustomResourceExt + ConvertTo<H> + DeserializeOwned + Serialize + Clone + Debug + 'static,
    H: CustomResourceExt + ConvertTo<S> + DeserializeOwned + Serialize + Clone + Debug + 'static,
{
    check_round_trip_of::<S, H>(&arbitrary::<S>());
    check_round_trip_of::<H, S>(&arbitrary::<H>());
}

/// Tests that values survive the way to another type and back, for types that are no kinds or need
/// values of their own.
///
/// ```
/// # use mizzen_sdk::convert::{Convert, check_round_trip_of};
/// # use proptest::prelude::*;
/// # use serde::Serialize;
/// #[derive(Clone, Debug, Serialize)]
/// struct Celsius { degrees: i32 }
///
/// #[derive(Convert, Clone, Debug, Serialize)]
/// #[convert(hub = Celsius)]
/// struct Temperature { degrees: i32 }
///
/// check_round_trip_of::<Temperature, Celsius>(&(-50..300).prop_map(|degrees| Temperature { degrees }));
/// ```
#[track_caller]
pub fn check_round_trip_of<A, B>(values: &impl Strategy<Value = A>)
where
    A: ConvertTo<B> + Serialize + Clone + Debug,
    B: ConvertTo<A>,
{
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, rng).run(values, |value| {
        let there_and_back = |value: A| -> Result<A, ConvertError> {
            let other: B = value.convert_to()?;
            other.convert_to()
        };
        let back = there_and_back(value.clone());
        let back = back.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let lost = json_diff(&encode(&value), &encode(&back));
        match lost.list() {
            [] => Ok(()),
            _ => Err(TestCaseError::fail(json::to_string(&lost))),
        }
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, value)) => panic!(
            "the conversion to {} and back changes an object: {reason}\nthe object: {}",
            std::any::type_name::<B>(),
            json::to_string(&encode(&value)),
        ),
        Err(TestError::Abort(reason)) => panic!("no objects to convert: {reason}"),
    }
}

fn encode(value: &impl Serialize) -> Value {
    let text = serde_json::to_vec(value).expect("objects are JSON");
    json::parse(&text).expect("serde_json writes JSON")
}
