//! At which points of a pod's way is a plugin asked?

use crate::plugin::Name;

macro_rules! points {
    ($($point:ident $field:literal),* $(,)?) => {
        /// A point of a pod's way at which plugins are asked.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Point { $($point,)* }

        impl Point {
            /// All of them, in the order in which upstream reads them.
            pub(super) const ALL: &[Point] = &[$(Point::$point,)*];

            /// Its field in a file.
            pub(super) fn field(self) -> &'static str {
                match self { $(Point::$point => $field,)* }
            }

            /// What upstream's messages call those who are asked there.
            pub(super) fn plugin(self) -> &'static str {
                match self { $(Point::$point => concat!(stringify!($point), "Plugin"),)* }
            }
        }
    };
}

points! {
    PreFilter "preFilter", Filter "filter", PostFilter "postFilter", Reserve "reserve", PreScore "preScore", Score "score",
    PreBind "preBind", Bind "bind", PostBind "postBind", Permit "permit", PreEnqueue "preEnqueue", QueueSort "queueSort",
}

impl Point {
    /// Whether a plugin is one that can be asked here.
    pub(super) fn asks(self, name: Name) -> bool {
        points_of(name).contains(&self)
    }
}

fn points_of(name: Name) -> &'static [Point] {
    use Point::{
        Bind, Filter, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve,
        Score,
    };
    match name {
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
    }
}
