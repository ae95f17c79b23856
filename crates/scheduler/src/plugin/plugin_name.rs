//! The names of plugins.

use std::fmt;

macro_rules! names {
    ($($name:ident),* $(,)?) => {
        /// An in-tree plugin.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(clippy::enum_variant_names, reason = "upstream's names")]
        pub(crate) enum Name { $($name,)* }

        impl Name {
            pub(crate) const ALL: &[Name] = &[$(Name::$name,)*];

            /// Its name in configuration files and messages.
            pub(crate) fn as_str(self) -> &'static str {
                match self { $(Name::$name => stringify!($name),)* }
            }
        }
    };
}

names! {
    SchedulingGates, PrioritySort, NodeUnschedulable, NodeName, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit,
    VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone, PodTopologySpread, InterPodAffinity, DynamicResources,
    DefaultPreemption, NodeResourcesBalancedAllocation, ImageLocality, DefaultBinder, NodeDeclaredFeatures, Extender,
}

impl Name {
    pub(crate) fn parse(name: &str) -> Option<Name> {
        Name::ALL
            .iter()
            .copied()
            .find(|known| *known != Name::Extender && known.as_str() == name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct PluginNames(u32);

impl PluginNames {
    pub(crate) fn insert(&mut self, name: Name) {
        self.0 |= 1 << name as u32;
    }

    pub(crate) fn has(self, name: Name) -> bool {
        self.0 & (1 << name as u32) != 0
    }

    pub(crate) fn all() -> PluginNames {
        Name::ALL.iter().copied().collect()
    }

    /// Whether both have one in common.
    pub(crate) fn intersects(self, other: PluginNames) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The names in alphabetical order, as Go prints a slice.
    pub(crate) fn go_text(self) -> String {
        let mut names: Vec<&str> = Name::ALL
            .iter()
            .filter(|name| self.has(**name))
            .map(|name| name.as_str())
            .collect();
        names.sort_unstable();
        format!("[{}]", names.join(" "))
    }
}

impl FromIterator<Name> for PluginNames {
    fn from_iter<I: IntoIterator<Item = Name>>(names: I) -> PluginNames {
        let mut set = PluginNames::default();
        names.into_iter().for_each(|name| set.insert(name));
        set
    }
}
