//! VolumeAttachments.

use mizzen_core_kinds::default_volume_spec;
use mizzen_object::validate::{field, names};
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::Value;

use super::driver_name;
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::{internal, rules};

pub(super) const ATTACHMENT: Behaviour = Behaviour::of::<VolumeAttachmentStrategy>();

pub(super) struct VolumeAttachmentStrategy;

impl KindStrategy for VolumeAttachmentStrategy {
    fn default(attachment: &mut Value) {
        if let Some(spec) = attachment.at_mut("spec.source.inlineVolumeSpec") {
            default_volume_spec(spec);
        }
    }

    fn validate(
        attachment: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        let spec = &attachment["spec"];
        let path = Path::new("spec");
        driver_name(spec["attacher"].str(), &path.child("attacher"), violations);
        let source = &spec["source"];
        let place = path.child("source");
        let exactly_one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        match (
            source.get("inlineVolumeSpec"),
            source["persistentVolumeName"].as_str(),
        ) {
            (None, None) => violations.required(place, exactly_one),
            (Some(_), Some(_)) => violations.forbidden(place, exactly_one),
            (None, Some("")) => {
                let detail = "must specify non empty persistentVolumeName";
                violations.required(place.child("persistentVolumeName"), detail);
            }
            _ => {}
        }
        rules::text(
            spec["nodeName"].str(),
            names::is_dns1123_subdomain,
            &path.child("nodeName"),
            violations,
        );
        let status = &attachment["status"];
        let path = Path::new("status");
        let metadata = status["attachmentMetadata"].entries();
        if metadata
            .map(|(key, value)| key.len() + value.str().len())
            .sum::<usize>()
            > MAX_METADATA_SIZE
        {
            violations.too_long(path.child("attachmentMetadata"), MAX_METADATA_SIZE);
        }
        for name in ["attachError", "detachError"] {
            let (error, path) = (&status[name], path.child(name));
            if error["message"].str().len() > 1024 {
                // Kubernetes: the limit that is named is another one's.
                violations.too_long(path.child("message"), MAX_METADATA_SIZE);
            }
            if let Some(code) = error["errorCode"].as_int().filter(|code| *code < 0) {
                violations.invalid(
                    path.child("errorCode"),
                    code,
                    "must be between 0 and 2147483647, inclusive",
                );
            }
        }
        if let Some(name) = attachment.at("spec.source.persistentVolumeName").as_str() {
            let path = Path::new("spec.source.persistentVolumeName");
            rules::text(name, names::is_dns1123_subdomain, &path, violations);
        }
        if let Some(old) = old.filter(|_| context.action == Action::Update) {
            let shown = |object: &Value| internal::shown("VolumeAttachmentSpec", &object["spec"]);
            field::immutable(
                &shown(attachment),
                &shown(old),
                &Path::new("spec"),
                violations,
            );
        }
    }
}

const MAX_METADATA_SIZE: usize = 256 * 1024;
