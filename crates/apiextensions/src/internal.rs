//! Parts of objects in messages.
//!
//! Kubernetes: messages print upstream's internal types as JSON: Go's names in Go's order, and no field left out.

use mizzen_value::{Map, Value};

/// A type's fields: `Go's name=API's name:type`. The API's name is left out where only the first letter differs.
/// Types are `s` text, `i` number, `b` truth value, `?` whatever it is or null; `T`, `?T` and `[]T` are structs.
const TYPES: &[(&str, &str)] = &[
    ("AuditAnnotation", "Key:s ValueExpression:s"),
    (
        "CustomResourceDefinitionVersion",
        "Name:s Served:b Storage:b Deprecated:b DeprecationWarning:? Schema:? Subresources:?Subresources \
         AdditionalPrinterColumns:[]PrinterColumn SelectableFields:[]SelectableField",
    ),
    ("Subresources", "Status:?Nothing Scale:?ScalePaths"),
    (
        "ScalePaths",
        "SpecReplicasPath:s StatusReplicasPath:s LabelSelectorPath:?",
    ),
    (
        "PrinterColumn",
        "Name:s Type:s Format:s Description:s Priority:i JSONPath=jsonPath:s",
    ),
    ("SelectableField", "JSONPath=jsonPath:s"),
    ("ResourceClaimSpec", "Devices:DeviceClaim"),
    (
        "DeviceClaim",
        "Requests:[]DeviceRequest Constraints:[]DeviceConstraint Config:[]DeviceClaimConfiguration",
    ),
    (
        "DeviceRequest",
        "Name:s Exactly:?ExactDeviceRequest FirstAvailable:[]DeviceSubRequest",
    ),
    (
        "ExactDeviceRequest",
        "DeviceClassName:s Selectors:[]DeviceSelector AllocationMode:s Count:i AdminAccess:? \
         Tolerations:[]Toleration Capacity:?CapacityRequirements",
    ),
    (
        "DeviceSubRequest",
        "Name:s DeviceClassName:s Selectors:[]DeviceSelector AllocationMode:s Count:i Tolerations:[]Toleration \
         Capacity:?CapacityRequirements",
    ),
    ("CapacityRequirements", "Requests:?"),
    ("DeviceSelector", "CEL=cel:?DeviceExpression"),
    ("DeviceExpression", "Expression:s"),
    (
        "DeviceConstraint",
        "Requests:? MatchAttribute:? DistinctAttribute:?",
    ),
    (
        "DeviceClaimConfiguration",
        "Requests:? Opaque:?OpaqueConfiguration",
    ),
    ("OpaqueConfiguration", "Driver:s Parameters:?"),
    (
        "AllocationResult",
        "Devices:DeviceAllocationResult NodeSelector:?NodeSelector AllocationTimestamp:?",
    ),
    (
        "DeviceAllocationResult",
        "Results:[]DeviceResult Config:[]DeviceResultConfiguration",
    ),
    (
        "DeviceResult",
        "Request:s Driver:s Pool:s Device:s AdminAccess:? Tolerations:[]Toleration BindingConditions:? \
         BindingFailureConditions:? ShareID:? ConsumedCapacity:?",
    ),
    (
        "DeviceResultConfiguration",
        "Source:s Requests:? Opaque:?OpaqueConfiguration",
    ),
    (
        "DeviceAttribute",
        "IntValue=int:? BoolValue=bool:? StringValue=string:? VersionValue=version:? IntValues=ints:? \
         BoolValues=bools:? StringValues=strings:? VersionValues=versions:?",
    ),
    ("SharedDeviceID", "Driver:s Pool:s Device:s ShareID:s"),
    ("NodeSelector", "NodeSelectorTerms:[]NodeSelectorTerm"),
    (
        "NodeSelectorTerm",
        "MatchExpressions:[]NodeSelectorRequirement MatchFields:[]NodeSelectorRequirement",
    ),
    ("NodeSelectorRequirement", "Key:s Operator:s Values:?"),
    ("RoleRef", "APIGroup=apiGroup:s Kind:s Name:s"),
    (
        "PodDisruptionBudgetSpec",
        "MinAvailable:? Selector:? MaxUnavailable:? UnhealthyPodEvictionPolicy:?",
    ),
    ("ParentReference", "Group:s Resource:s Namespace:s Name:s"),
    ("ServiceCIDRSpec", "CIDRs=cidrs:?"),
    (
        "CSINodeDriver",
        "Name:s NodeID:s TopologyKeys:? Allocatable:?",
    ),
    (
        "VolumeAttachmentSpec",
        "Attacher:s Source:VolumeAttachmentSource NodeName:s",
    ),
    (
        "VolumeAttachmentSource",
        "PersistentVolumeName:? InlineVolumeSpec:?",
    ),
    (
        "ObjectReference",
        "Kind:s Namespace:s Name:s UID=uid:s APIVersion=apiVersion:s ResourceVersion:s FieldPath:s",
    ),
    ("EventSource", "Component:s Host:s"),
    ("NonResourceAttributes", "Path:s Verb:s"),
    (
        "FlowSchemaSpec",
        "PriorityLevelConfiguration:Named MatchingPrecedence:i DistinguisherMethod:?Typed Rules:[]FlowRule",
    ),
    (
        "FlowRule",
        "Subjects:[]FlowSubject ResourceRules:[]FlowResourceRule NonResourceRules:[]FlowNonResourceRule",
    ),
    (
        "FlowSubject",
        "Kind:s User:?Named Group:?Named ServiceAccount:?FlowServiceAccount",
    ),
    ("FlowServiceAccount", "Namespace:s Name:s"),
    (
        "FlowResourceRule",
        "Verbs:? APIGroups=apiGroups:? Resources:? ClusterScope:b Namespaces:?",
    ),
    ("FlowNonResourceRule", "Verbs:? NonResourceURLs:?"),
    (
        "PriorityLevelConfigurationSpec",
        "Type:s Limited:?LimitedLevel Exempt:?ExemptLevel",
    ),
    (
        "LimitedLevel",
        "NominalConcurrencyShares:i LimitResponse:LimitResponse LendablePercent:? BorrowingLimitPercent:?",
    ),
    (
        "ExemptLevel",
        "NominalConcurrencyShares:? LendablePercent:?",
    ),
    ("LimitResponse", "Type:s Queuing:?Queuing"),
    ("Queuing", "Queues:i HandSize:i QueueLengthLimit:i"),
    ("Named", "Name:s"),
    ("Typed", "Type:s"),
    (
        "Toleration",
        "Key:s Operator:s Value:s Effect:s TolerationSeconds:?",
    ),
];

/// The internal form of a value of a type.
pub fn shown(ty: &str, value: &Value) -> Value {
    let fields = TYPES
        .iter()
        .find(|(name, _)| *name == ty)
        .map_or("", |(_, fields)| fields);
    fields
        .split_whitespace()
        .map(|field| {
            let (names, ty) = field.split_once(':').unwrap_or((field, "?"));
            let (go, name) = match names.split_once('=') {
                Some((go, name)) => (go, name.to_string()),
                None => (
                    names,
                    format!("{}{}", names[..1].to_ascii_lowercase(), &names[1..]),
                ),
            };
            let value = &value[name.as_str()];

            let (mark, name) = ty.split_at(
                ty.find(|char: char| char.is_ascii_alphabetic())
                    .unwrap_or(ty.len()),
            );
            let member = match (mark, name) {
                ("", "s") => value.str().into(),
                ("", "i") => value.int().into(),
                ("", "b") => value.bool().into(),
                ("?", "") => value.clone(),
                ("", name) => shown(name, value),
                (_, _) if value.is_null() => Value::Null,
                ("[]", name) => value
                    .items()
                    .map(|item| shown(name, item))
                    .collect::<Vec<_>>()
                    .into(),
                (_, name) => shown(name, value),
            };
            (go.to_string(), member)
        })
        .collect::<Map>()
        .into()
}

#[cfg(test)]
mod tests {
    use mizzen_value::{json, value};

    use super::shown;

    #[test]
    fn every_field_is_shown_by_its_go_name() {
        let spec = value!({"type": "Limited", "limited": {"lendablePercent": 7, "limitResponse": {"type": "Reject"}}});
        let shown = json::to_string(&shown("PriorityLevelConfigurationSpec", &spec));
        let limited = r#"{"NominalConcurrencyShares":0,"LimitResponse":{"Type":"Reject","Queuing":null},"LendablePercent":7,"BorrowingLimitPercent":null}"#;
        assert_eq!(
            shown,
            format!(r#"{{"Type":"Limited","Limited":{limited},"Exempt":null}}"#)
        );
    }
}
