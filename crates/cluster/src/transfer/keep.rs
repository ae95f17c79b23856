//! Which fields of objects are kept, of those that belong to one cluster.

use clap::{Args, ValueEnum};

/// The argument of what is kept.
#[derive(Args, Clone)]
pub(crate) struct KeepArgs {
    /// Keep these fields of objects, which otherwise the target sets
    #[arg(
        long,
        value_name = "FIELDS",
        value_delimiter = ',',
        default_value = "status"
    )]
    keep: Vec<KeepField>,
}

/// A group of fields that can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KeepField {
    /// Only what users write
    None,
    /// status
    Status,
    /// Cluster IPs and node ports of Services
    Addresses,
    /// metadata.managedFields
    ManagedFields,
    /// uid, timestamps and generation; an import needs a stopped cluster
    Uid,
    /// resourceVersion; an import needs a new data directory
    Revision,
    /// Everything
    All,
}

/// The kept fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Keep {
    pub(crate) status: bool,
    pub(crate) addresses: bool,
    pub(crate) managed_fields: bool,
    pub(crate) uid: bool,
    pub(crate) revision: bool,
}

impl Keep {
    /// Everything is kept.
    pub(crate) const ALL: Keep = Keep {
        status: true,
        addresses: true,
        managed_fields: true,
        uid: true,
        revision: true,
    };
}

impl KeepArgs {
    /// The kept fields.
    pub(crate) fn keep(&self) -> Keep {
        let has = |field| self.keep.contains(&field) || self.keep.contains(&KeepField::All);
        Keep {
            status: has(KeepField::Status),
            addresses: has(KeepField::Addresses),
            managed_fields: has(KeepField::ManagedFields),
            uid: has(KeepField::Uid),
            revision: has(KeepField::Revision),
        }
    }
}
