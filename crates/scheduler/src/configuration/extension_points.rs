//! Extension points, and the plugins that implement them.

use crate::plugin::Name;

macro_rules! points {
    ($($point:ident $field:literal),* $(,)?) => {
        /// An extension point of the scheduling framework.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum ExtensionPoint { $($point,)* }

        impl ExtensionPoint {
            /// All extension points, in the order in which upstream reads them.
            pub(super) const ALL: &[ExtensionPoint] = &[$(ExtensionPoint::$point,)*];

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
    /// Whether a plugin implements this extension point.
    pub(super) fn is_implemented_by(self, name: Name) -> bool {
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
            Name::Extender => &[],
        };
        points.contains(&self)
    }
}
