//! Generated from `specs/proto` and `specs/methods.toml` by `specs/generate_methods.py`: edit those, then `make fix`.

/// A method of the gRPC port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// `/service/method`.
    pub path: &'static str,
    /// Whether it is defined in `specs/proto`; otherwise it belongs to Flight, health or reflection.
    pub is_ours: bool,
    /// The name by which the control plane knows it; `None` = the data plane answers.
    pub handler: Option<&'static str>,
    /// Whether the caller sends a stream of messages.
    pub streams_requests: bool,
    /// Whether it changes nothing, so that its call may be repeated. Known of our methods only.
    pub reads: bool,
}

impl Method {
    /// The place of a path in [`METHODS`].
    pub fn index(path: &str) -> Option<usize> {
        METHODS
            .binary_search_by(|method| method.path.cmp(path))
            .ok()
    }

    /// The method of a path.
    pub fn of(path: &str) -> Option<&'static Self> {
        Self::index(path).and_then(|index| METHODS.get(index))
    }

    /// The method of ours with this name, which only one service has.
    pub fn named(name: &str) -> Option<&'static Self> {
        let mut ours = METHODS.iter().filter(|method| method.is_ours);
        ours.find(|method| method.name() == name)
    }

    /// The full name of its service.
    pub fn service(&self) -> &'static str {
        self.parts().0
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.parts().1
    }

    fn parts(&self) -> (&'static str, &'static str) {
        let path = self.path.trim_start_matches('/');
        path.split_once('/').unwrap_or_default()
    }
}

/// Every method that is served, sorted by path.
#[rustfmt::skip]
pub static METHODS: [Method; 62] = [
    Method { path: "/arrow.flight.protocol.FlightService/DoAction", is_ours: false, handler: None, streams_requests: false, reads: false },
    Method { path: "/arrow.flight.protocol.FlightService/DoExchange", is_ours: false, handler: None, streams_requests: true, reads: false },
    Method { path: "/arrow.flight.protocol.FlightService/DoGet", is_ours: false, handler: None, streams_requests: false, reads: false },
    Method { path: "/arrow.flight.protocol.FlightService/DoPut", is_ours: false, handler: None, streams_requests: true, reads: false },
    Method { path: "/arrow.flight.protocol.FlightService/GetFlightInfo", is_ours: false, handler: None, streams_requests: false, reads: false },
    Method { path: "/arrow.flight.protocol.FlightService/GetSchema", is_ours: false, handler: None, streams_requests: false, reads: false },
    Method { path: "/arrow.flight.protocol.FlightService/Handshake", is_ours: false, handler: None, streams_requests: true, reads: false },
    Method { path: "/arrow.flight.protocol.FlightService/ListActions", is_ours: false, handler: None, streams_requests: false, reads: false },
    Method { path: "/arrow.flight.protocol.FlightService/ListFlights", is_ours: false, handler: None, streams_requests: false, reads: false },
    Method { path: "/arrow.flight.protocol.FlightService/PollFlightInfo", is_ours: false, handler: None, streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/AbortSink", is_ours: true, handler: Some("admin/AbortSink"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/CheckCreateStream", is_ours: true, handler: Some("admin/CheckCreateStream"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/CreateUser", is_ours: true, handler: Some("admin/CreateUser"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/CreateUserToken", is_ours: true, handler: Some("admin/CreateUserToken"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/DeleteSink", is_ours: true, handler: Some("admin/DeleteSink"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/DeleteUser", is_ours: true, handler: Some("admin/DeleteUser"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/DeleteUserToken", is_ours: true, handler: Some("admin/DeleteUserToken"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/EditStream", is_ours: true, handler: Some("admin/EditStream"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/FetchBrokerDetails", is_ours: true, handler: Some("admin/FetchBrokerDetails"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/FetchClusterStatus", is_ours: true, handler: Some("admin/FetchClusterStatus"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/FetchGroupDetails", is_ours: true, handler: Some("admin/FetchGroupDetails"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/FetchLags", is_ours: true, handler: Some("admin/FetchLags"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/FetchSinkStreams", is_ours: true, handler: Some("admin/FetchSinkStreams"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/FetchSinks", is_ours: true, handler: Some("admin/FetchSinks"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/FetchStreamDetails", is_ours: true, handler: Some("admin/FetchStreamDetails"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/FetchStreams", is_ours: true, handler: Some("admin/FetchStreams"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/FetchUsers", is_ours: true, handler: Some("admin/FetchUsers"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/OpenSink", is_ours: true, handler: Some("admin/OpenSink"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/PublishSink", is_ours: true, handler: Some("admin/PublishSink"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/PurgeStream", is_ours: true, handler: Some("admin/PurgeStream"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/ReleaseHold", is_ours: true, handler: Some("admin/ReleaseHold"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/RenewSink", is_ours: true, handler: Some("admin/RenewSink"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/ReportArchived", is_ours: true, handler: Some("admin/ReportArchived"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/ReportQuery", is_ours: true, handler: Some("admin/ReportQuery"), streams_requests: false, reads: true },
    Method { path: "/bascule.admin.v1.Admin/ResumeStream", is_ours: true, handler: Some("admin/ResumeStream"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/SetSinkOwner", is_ours: true, handler: Some("admin/SetSinkOwner"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/SetSinkQuota", is_ours: true, handler: Some("admin/SetSinkQuota"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/SetUserPassword", is_ours: true, handler: Some("admin/SetUserPassword"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/SetUserRights", is_ours: true, handler: Some("admin/SetUserRights"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/SetUserStatus", is_ours: true, handler: Some("admin/SetUserStatus"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/SkipSink", is_ours: true, handler: Some("admin/SkipSink"), streams_requests: false, reads: false },
    Method { path: "/bascule.admin.v1.Admin/TrimPartition", is_ours: true, handler: Some("admin/TrimPartition"), streams_requests: false, reads: false },
    Method { path: "/grpc.health.v1.Health/Check", is_ours: false, handler: None, streams_requests: false, reads: false },
    Method { path: "/grpc.health.v1.Health/Watch", is_ours: false, handler: None, streams_requests: false, reads: false },
    Method { path: "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", is_ours: false, handler: None, streams_requests: true, reads: false },
    Method { path: "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", is_ours: false, handler: None, streams_requests: true, reads: false },
    Method { path: "/proto.API/CreateStream", is_ours: true, handler: Some("liftbridge/CreateStream"), streams_requests: false, reads: false },
    Method { path: "/proto.API/DeleteStream", is_ours: true, handler: Some("liftbridge/DeleteStream"), streams_requests: false, reads: false },
    Method { path: "/proto.API/FetchConsumerGroupAssignments", is_ours: true, handler: Some("liftbridge/FetchConsumerGroupAssignments"), streams_requests: false, reads: true },
    Method { path: "/proto.API/FetchCursor", is_ours: true, handler: None, streams_requests: false, reads: true },
    Method { path: "/proto.API/FetchMetadata", is_ours: true, handler: Some("liftbridge/FetchMetadata"), streams_requests: false, reads: true },
    Method { path: "/proto.API/FetchPartitionMetadata", is_ours: true, handler: Some("liftbridge/FetchPartitionMetadata"), streams_requests: false, reads: true },
    Method { path: "/proto.API/JoinConsumerGroup", is_ours: true, handler: Some("liftbridge/JoinConsumerGroup"), streams_requests: false, reads: false },
    Method { path: "/proto.API/LeaveConsumerGroup", is_ours: true, handler: Some("liftbridge/LeaveConsumerGroup"), streams_requests: false, reads: false },
    Method { path: "/proto.API/PauseStream", is_ours: true, handler: Some("liftbridge/PauseStream"), streams_requests: false, reads: false },
    Method { path: "/proto.API/Publish", is_ours: true, handler: None, streams_requests: false, reads: false },
    Method { path: "/proto.API/PublishAsync", is_ours: true, handler: None, streams_requests: true, reads: false },
    Method { path: "/proto.API/PublishToSubject", is_ours: true, handler: None, streams_requests: false, reads: false },
    Method { path: "/proto.API/ReportConsumerGroupCoordinator", is_ours: true, handler: Some("liftbridge/ReportConsumerGroupCoordinator"), streams_requests: false, reads: false },
    Method { path: "/proto.API/SetCursor", is_ours: true, handler: None, streams_requests: false, reads: false },
    Method { path: "/proto.API/SetStreamReadonly", is_ours: true, handler: Some("liftbridge/SetStreamReadonly"), streams_requests: false, reads: false },
    Method { path: "/proto.API/Subscribe", is_ours: true, handler: None, streams_requests: false, reads: true },
];

/// The service of `specs/proto/liftbridge.proto`.
pub const API: &str = "proto.API";
/// The service of `specs/proto/bascule_admin_v1.proto`.
pub const ADMIN: &str = "bascule.admin.v1.Admin";

/// Path of `Subscribe`.
pub const SUBSCRIBE: &str = "/proto.API/Subscribe";
/// Path of `Publish`.
pub const PUBLISH: &str = "/proto.API/Publish";
/// Path of `PublishAsync`.
pub const PUBLISH_ASYNC: &str = "/proto.API/PublishAsync";
/// Path of `PublishToSubject`.
pub const PUBLISH_TO_SUBJECT: &str = "/proto.API/PublishToSubject";
/// Path of `SetCursor`.
pub const SET_CURSOR: &str = "/proto.API/SetCursor";
/// Path of `FetchCursor`.
pub const FETCH_CURSOR: &str = "/proto.API/FetchCursor";

/// What a policy can allow. Most methods have an action of their name; similar ones share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Action {
    CreateStream,
    DeleteStream,
    PauseStream,
    SetStreamReadonly,
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
    TrimPartition,
    PurgeStream,
    EditStream,
    HoldRetention,
    ManageSinks,
    ManageUsers,
}

impl Action {
    /// All of them, in the order of the enumeration.
    pub const ALL: [Self; 21] = [
        Self::CreateStream,
        Self::DeleteStream,
        Self::PauseStream,
        Self::SetStreamReadonly,
        Self::Subscribe,
        Self::FetchMetadata,
        Self::FetchPartitionMetadata,
        Self::Publish,
        Self::PublishToSubject,
        Self::SetCursor,
        Self::FetchCursor,
        Self::JoinConsumerGroup,
        Self::LeaveConsumerGroup,
        Self::FetchConsumerGroupAssignments,
        Self::ReportConsumerGroupCoordinator,
        Self::TrimPartition,
        Self::PurgeStream,
        Self::EditStream,
        Self::HoldRetention,
        Self::ManageSinks,
        Self::ManageUsers,
    ];

    /// The name in policies and texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CreateStream => "CreateStream",
            Self::DeleteStream => "DeleteStream",
            Self::PauseStream => "PauseStream",
            Self::SetStreamReadonly => "SetStreamReadonly",
            Self::Subscribe => "Subscribe",
            Self::FetchMetadata => "FetchMetadata",
            Self::FetchPartitionMetadata => "FetchPartitionMetadata",
            Self::Publish => "Publish",
            Self::PublishToSubject => "PublishToSubject",
            Self::SetCursor => "SetCursor",
            Self::FetchCursor => "FetchCursor",
            Self::JoinConsumerGroup => "JoinConsumerGroup",
            Self::LeaveConsumerGroup => "LeaveConsumerGroup",
            Self::FetchConsumerGroupAssignments => "FetchConsumerGroupAssignments",
            Self::ReportConsumerGroupCoordinator => "ReportConsumerGroupCoordinator",
            Self::TrimPartition => "TrimPartition",
            Self::PurgeStream => "PurgeStream",
            Self::EditStream => "EditStream",
            Self::HoldRetention => "HoldRetention",
            Self::ManageSinks => "ManageSinks",
            Self::ManageUsers => "ManageUsers",
        }
    }

    /// The action of a name, which is case-sensitive.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}
