//! The names of plugins.

use std::fmt;

use parking_lot::RwLock;

/// The names of plugins out of tree, for the life of the process: a [`Name`] stays a small number.
static CUSTOM_NAMES: RwLock<Vec<&str>> = RwLock::new(Vec::new());

macro_rules! names {
    ($($name:ident),* $(,)?) => {
        /// A plugin.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(clippy::enum_variant_names, reason = "upstream's names")]
        pub(crate) enum Name {
            $($name,)*
            /// Out of tree: its place in [`CUSTOM_NAMES`].
            Custom(u8),
        }

        impl Name {
            /// The plugins in tree.
            const IN_TREE: &[Name] = &[$(Name::$name,)*];

            /// Its name in configuration files and messages.
            pub(crate) fn as_str(self) -> &'static str {
                match self {
                    $(Name::$name => stringify!($name),)*
                    Name::Custom(place) => CUSTOM_NAMES.read()[usize::from(place)],
                }
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
    /// The number of plugins out of tree that a process may have.
    pub(crate) const MAX_CUSTOM: usize = Name::MAX - Name::IN_TREE.len();

    /// The number of all plugins that a process may have.
    pub(crate) const MAX: usize = u64::BITS as usize;

    /// The name of a plugin out of tree. `None` if the process has too many of them.
    pub(crate) fn register(name: &str) -> Option<Name> {
        let mut names = CUSTOM_NAMES.write();
        let place = names.iter().position(|known| *known == name);
        let place = place.unwrap_or(names.len());
        if place == names.len() {
            if place == Name::MAX_CUSTOM {
                return None;
            }
            names.push(String::from(name).leak());
        }
        u8::try_from(place).ok().map(Name::Custom)
    }

    /// All plugins of the process, in tree first.
    pub(crate) fn all() -> impl Iterator<Item = Name> {
        let n_custom = CUSTOM_NAMES.read().len() as u8;
        let in_tree = Name::IN_TREE.iter().copied();
        in_tree.chain((0..n_custom).map(Name::Custom))
    }

    /// Its place among all plugins: less than the bits of [`PluginNames`].
    pub(crate) fn index(self) -> usize {
        match self {
            Name::Custom(place) => Name::IN_TREE.len() + usize::from(place),
            name => Name::IN_TREE
                .iter()
                .position(|known| *known == name)
                .unwrap_or_default(),
        }
    }

    /// Its bit in [`PluginNames`].
    fn bit(self) -> u64 {
        1 << self.index()
    }

    /// The name of a plugin in tree.
    pub(crate) fn parse(name: &str) -> Option<Name> {
        Name::IN_TREE
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
pub(crate) struct PluginNames(u64);

impl PluginNames {
    pub(crate) fn insert(&mut self, name: Name) {
        self.0 |= name.bit();
    }

    pub(crate) fn has(self, name: Name) -> bool {
        self.0 & name.bit() != 0
    }

    pub(crate) fn all() -> PluginNames {
        Name::all().collect()
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
        let names = Name::all().filter(|name| self.has(*name));
        let mut names: Vec<&str> = names.map(Name::as_str).collect();
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
