//! What can be allowed.

macro_rules! actions {
    ($($action:ident),* $(,)?) => {
        /// A method, or a pair of methods that do the same: PublishAsync is Publish. Named as the protocol names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Action {
            $($action,)*
        }

        impl Action {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$action,)*];

            /// The name in policies and texts.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$action => stringify!($action),)*
                }
            }
        }
    };
}

actions! {
    CreateStream,
    DeleteStream,
    PauseStream,
    SetStreamReadonly,
    EditStream,
    TrimPartition,
    PurgeStream,
    Subscribe,
    FetchMetadata,
    FetchPartitionMetadata,
    Publish,
    PublishToSubject,
    SetCursor,
    FetchCursor,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    FetchConsumerGroupAssignments,
    ReportConsumerGroupCoordinator,
}

impl Action {
    /// The action of a name, which is case-sensitive.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|action| action.name() == name)
    }
}
