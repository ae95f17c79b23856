//! Extension points, and the plugins that implement them.

use crate::plugin::Name;

macro_rules! points {
    ($($point:ident $field:literal),* $(,)?) => {
        /// An extension point of the scheduling framework.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum ExtensionPoint { $($point,)* }

        impl ExtensionPoint {
            /// All extension points, in the order in which upstream reads them.
            pub(crate) const ALL: &[ExtensionPoint] = &[$(ExtensionPoint::$point,)*];

            /// Its name.
            pub(crate) fn as_str(self) -> &'static str {
                match self { $(ExtensionPoint::$point => stringify!($point),)* }
            }

            /// Its field in a configuration file.
            pub(super) fn field(self) -> &'static str {
                match self { $(ExtensionPoint::$point => $field,)* }
            }

            /// The name of its plugin interface, as in upstream's messages.
            pub(super) fn plugin(self) -> &'static str {
                match self { $(ExtensionPoint::$point => concat!(stringify!($point), "Plugin"),)* }
            }
        }
    };
}

points! {
    PreFilter "preFilter", Filter "filter", PostFilter "postFilter", Reserve "reserve", PreScore "preScore", Score "score",
    PreBind "preBind", Bind "bind", PostBind "postBind", Permit "permit", PreEnqueue "preEnqueue", QueueSort "queueSort",
}

impl ExtensionPoint {
    /// Whether a plugin is measured at this extension point. One out of tree is wherever it runs.
    pub(crate) fn measures(self, name: Name) -> bool {
        matches!(name, Name::Custom(_)) || self.is_implemented_by(name)
    }

    /// Whether a plugin implements this extension point.
    pub(crate) fn is_implemented_by(self, name: Name) -> bool {
        use ExtensionPoint::{
            Bind, Filter, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve,
            Score,
        };
        let points: &[ExtensionPoint] = match name {
            Name::SchedulingGates => &[PreEnqueue],
            Name::PrioritySort => &[QueueSort],
            Name::NodeUnschedulable | Name::NodeName => &[Filter],
            Name::TaintToleration => &[Filter, PreScore, Score],
            Name::NodeAffinity
            | Name::NodeResourcesFit
            | Name::PodTopologySpread
            | Name::InterPodAffinity => &[PreFilter, Filter, PreScore, Score],
            Name::NodePorts
            | Name::VolumeRestrictions
            | Name::NodeVolumeLimits
            | Name::VolumeZone
            | Name::NodeDeclaredFeatures => &[PreFilter, Filter],
            Name::VolumeBinding => &[PreFilter, Filter, Reserve, PreBind, PreScore, Score],
            Name::DynamicResources => &[
                PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind,
            ],
            Name::DefaultPreemption => &[PostFilter, PreEnqueue],
            Name::NodeResourcesBalancedAllocation => &[PreScore, Score],
            Name::ImageLocality => &[Score],
            Name::DefaultBinder => &[Bind],
            // A plugin out of tree says itself which it implements.
            Name::Extender | Name::Custom(_) => &[],
        };
        points.contains(&self)
    }
}
