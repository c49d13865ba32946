//! gRPC server reflection, which the original lacks: tools learn the API from the broker itself.
use tonic::body::Body;
use tonic::server::NamedService;
use tonic_reflection::server::{Builder, Error};

/// The descriptors of `specs/proto/liftbridge.proto`, the ones that the Python side uses.
const LIFTBRIDGE: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../python/bascule/_liftbridge_pb/liftbridge.binpb"
));
/// The same of `specs/proto/bascule_admin_v1.proto`.
const ADMIN: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../python/bascule/_admin_pb/admin.binpb"
));

/// `grpc.reflection.v1.ServerReflection`.
///
/// # Errors
/// The descriptors cannot be read.
pub fn v1() -> Result<impl Service, Error> {
    Builder::configure()
        .register_encoded_file_descriptor_set(LIFTBRIDGE)
        .register_encoded_file_descriptor_set(ADMIN)
        .build_v1()
}

/// The same under the name that older tools ask for.
///
/// # Errors
/// The descriptors cannot be read.
pub fn v1alpha() -> Result<impl Service, Error> {
    Builder::configure()
        .register_encoded_file_descriptor_set(LIFTBRIDGE)
        .register_encoded_file_descriptor_set(ADMIN)
        .build_v1alpha()
}

/// The service for tonic's router.
pub trait Service:
    tower::Service<
        http::Request<Body>,
        Response = http::Response<Body>,
        Error = std::convert::Infallible,
        Future: Send + 'static,
    > + NamedService
    + Clone
    + Send
    + Sync
    + 'static
{
}
impl<S> Service for S where
    S: tower::Service<
            http::Request<Body>,
            Response = http::Response<Body>,
            Error = std::convert::Infallible,
            Future: Send + 'static,
        > + NamedService
        + Clone
        + Send
        + Sync
        + 'static
{
}
