//! The volumes of a pod, as far as scheduling depends on them.

use mizzen_value::{Str, Value};

/// An inline volume that conflicts with the same volume of another pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RestrictedDisk {
    /// The volume type and ID.
    id: Str,
    /// RBD monitors: two volumes are the same if they have one in common.
    servers: Box<[Str]>,
    /// Whether it is mounted read-only and can be shared by readers.
    only_reads: bool,
}

impl RestrictedDisk {
    /// Whether two pods cannot both mount it on one node.
    pub(crate) fn conflicts_with(&self, other: &RestrictedDisk) -> bool {
        let same_server =
            self.servers.is_empty() || self.servers.iter().any(|one| other.servers.contains(one));
        self.id == other.id && same_server && !(self.only_reads && other.only_reads)
    }

    fn from_volume(volume: &Value) -> Option<RestrictedDisk> {
        let disk = |kind: &str, id: &str, read_only: &Value| RestrictedDisk {
            id: format!("{kind} {id}").into(),
            servers: Box::default(),
            only_reads: read_only.bool(),
        };
        if let Some(id) = volume["gcePersistentDisk"]["pdName"].as_str() {
            return Some(disk("gce", id, &volume["gcePersistentDisk"]["readOnly"]));
        }
        if let Some(id) = volume["awsElasticBlockStore"]["volumeID"].as_str() {
            return Some(disk("aws", id, &Value::Null));
        }
        if let Some(id) = volume["iscsi"]["iqn"].as_str() {
            return Some(disk("iscsi", id, &volume["iscsi"]["readOnly"]));
        }
        let rbd = &volume["rbd"];
        let image = rbd["image"].as_str()?;
        let servers = rbd["monitors"]
            .list()
            .iter()
            .map(|server| server.str().into())
            .collect();
        Some(RestrictedDisk {
            servers,
            ..disk(
                "rbd",
                &format!("{} {image}", rbd["pool"].str()),
                &rbd["readOnly"],
            )
        })
    }
}

/// A PersistentVolumeClaim that a pod uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimUse {
    pub name: Str,
    /// Whether it is a generic ephemeral volume, owned by the pod.
    pub ephemeral: bool,
}

/// The volumes of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodVolumes {
    pub claims: Box<[ClaimUse]>,
    pub disks: Box<[RestrictedDisk]>,
}

impl PodVolumes {
    pub(crate) fn from_pod_volumes(pod_name: &str, volumes: &Value) -> PodVolumes {
        let volumes = volumes.list();
        let claim = |volume: &Value| {
            let ephemeral = !volume["ephemeral"].is_null();
            let name = match ephemeral {
                true => format!("{pod_name}-{}", volume["name"].str()).into(),
                false => volume["persistentVolumeClaim"]["claimName"]
                    .as_str()?
                    .into(),
            };
            Some(ClaimUse { name, ephemeral })
        };
        PodVolumes {
            claims: volumes.iter().filter_map(claim).collect(),
            disks: volumes
                .iter()
                .filter_map(RestrictedDisk::from_volume)
                .collect(),
        }
    }
}
