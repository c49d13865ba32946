//! The sixteen methods of `proto.API`, as gRPC paths, and ours beside them.

/// Full name of the service.
pub const SERVICE: &str = "proto.API";
/// Creates a stream.
pub const CREATE_STREAM: &str = "/proto.API/CreateStream";
/// Deletes a stream.
pub const DELETE_STREAM: &str = "/proto.API/DeleteStream";
/// Pauses partitions.
pub const PAUSE_STREAM: &str = "/proto.API/PauseStream";
/// Makes partitions refuse writes, or accept them again.
pub const SET_STREAM_READONLY: &str = "/proto.API/SetStreamReadonly";
/// Delivers one partition; server stream.
pub const SUBSCRIBE: &str = "/proto.API/Subscribe";
/// Brokers, streams, groups.
pub const FETCH_METADATA: &str = "/proto.API/FetchMetadata";
/// One partition.
pub const FETCH_PARTITION_METADATA: &str = "/proto.API/FetchPartitionMetadata";
/// Publishes one message.
pub const PUBLISH: &str = "/proto.API/Publish";
/// Publishes many; both ways a stream.
pub const PUBLISH_ASYNC: &str = "/proto.API/PublishAsync";
/// Publishes to a NATS subject.
pub const PUBLISH_TO_SUBJECT: &str = "/proto.API/PublishToSubject";
/// Stores a cursor.
pub const SET_CURSOR: &str = "/proto.API/SetCursor";
/// Finds a cursor.
pub const FETCH_CURSOR: &str = "/proto.API/FetchCursor";
/// Joins a group.
pub const JOIN_CONSUMER_GROUP: &str = "/proto.API/JoinConsumerGroup";
/// Leaves a group.
pub const LEAVE_CONSUMER_GROUP: &str = "/proto.API/LeaveConsumerGroup";
/// What a member is to read.
pub const FETCH_CONSUMER_GROUP_ASSIGNMENTS: &str = "/proto.API/FetchConsumerGroupAssignments";
/// Complains about a coordinator.
pub const REPORT_CONSUMER_GROUP_COORDINATOR: &str = "/proto.API/ReportConsumerGroupCoordinator";

/// Removes a prefix of a partition; ours, a JSON object there and back.
pub const TRIM_PARTITION: &str = "/proto.API/TrimPartition";
/// Removes all records of a stream; ours, a JSON object there and back.
pub const PURGE_STREAM: &str = "/proto.API/PurgeStream";

/// Changes settings of a stream; ours, a JSON object there and back.
pub const EDIT_STREAM: &str = "/proto.API/EditStream";
/// Opens paused partitions again; ours, a JSON object there and back.
pub const RESUME_STREAM: &str = "/proto.API/ResumeStream";
/// Whether `CreateStream` would be granted; ours, the same request, an empty answer.
pub const CHECK_CREATE_STREAM: &str = "/proto.API/CheckCreateStream";
/// All that is known of a stream; ours, a JSON object there and back.
pub const FETCH_STREAM_DETAILS: &str = "/proto.API/FetchStreamDetails";
/// Groups with their members; ours, a JSON object there and back.
pub const FETCH_GROUP_DETAILS: &str = "/proto.API/FetchGroupDetails";
/// The broker that answers, with its counters; ours, a JSON object there and back.
pub const FETCH_BROKER_DETAILS: &str = "/proto.API/FetchBrokerDetails";

/// Those that Liftbridge does not have.
pub const OURS: [&str; 8] = [
    TRIM_PARTITION,
    PURGE_STREAM,
    EDIT_STREAM,
    RESUME_STREAM,
    CHECK_CREATE_STREAM,
    FETCH_STREAM_DETAILS,
    FETCH_GROUP_DETAILS,
    FETCH_BROKER_DETAILS,
];

/// All of Liftbridge's, in the order of the definition.
pub const ALL: [&str; 16] = [
    CREATE_STREAM,
    DELETE_STREAM,
    PAUSE_STREAM,
    SET_STREAM_READONLY,
    SUBSCRIBE,
    FETCH_METADATA,
    FETCH_PARTITION_METADATA,
    PUBLISH,
    PUBLISH_ASYNC,
    PUBLISH_TO_SUBJECT,
    SET_CURSOR,
    FETCH_CURSOR,
    JOIN_CONSUMER_GROUP,
    LEAVE_CONSUMER_GROUP,
    FETCH_CONSUMER_GROUP_ASSIGNMENTS,
    REPORT_CONSUMER_GROUP_COORDINATOR,
];
