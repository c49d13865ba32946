//! The Flight service: `DoGet` over a raw body, everything else through tonic.
use super::offsets;
use super::refusal::{invalid, unimplemented};
use super::{get, info, put, resolve, sql};
use crate::context::SharedRef;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use std::convert::Infallible;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::{Request, Response, Status, Streaming};

/// Largest message taken in: one record batch of a `DoPut`, bytes. 64 MiB of records and room for their heads.
pub const MAX_MESSAGE_BYTES: usize = 72 << 20;
/// Path of the method that is served over a raw body.
const DO_GET: &str = "/arrow.flight.protocol.FlightService/DoGet";

/// The service as tonic's router takes it.
///
/// `DoGet` is answered here, with column buffers handed to the connection as they are; the rest by the generated server.
#[derive(Clone, Debug)]
pub struct FlightRouter {
    shared: SharedRef,
    rest: FlightServiceServer<Handler>,
}

impl FlightRouter {
    /// The service of a broker.
    pub fn new(shared: &SharedRef) -> Self {
        let handler = Handler {
            shared: shared.clone(),
        };
        let rest = FlightServiceServer::new(handler)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Self {
            shared: shared.clone(),
            rest,
        }
    }
}

impl NamedService for FlightRouter {
    const NAME: &'static str = "arrow.flight.protocol.FlightService";
}

impl Service<http::Request<Body>> for FlightRouter {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() == DO_GET {
            let shared = self.shared.clone();
            return Box::pin(async move {
                Ok(get::respond(shared, request)
                    .await
                    .unwrap_or_else(Status::into_http))
            });
        }
        self.rest.call(request)
    }
}

/// Answers everything but `DoGet`.
#[derive(Debug)]
pub struct Handler {
    shared: SharedRef,
}

type Answer<T> = Result<Response<T>, Status>;
type Items<T> = BoxStream<'static, Result<T, Status>>;

fn items<T: Send + 'static>(items: Vec<T>) -> Response<Items<T>> {
    Response::new(stream::iter(items.into_iter().map(Ok)).boxed())
}

#[tonic::async_trait]
impl FlightService for Handler {
    type HandshakeStream = Items<HandshakeResponse>;
    type ListFlightsStream = Items<FlightInfo>;
    type DoGetStream = Items<FlightData>;
    type DoPutStream = Items<PutResult>;
    type DoActionStream = Items<arrow_flight::Result>;
    type ListActionsStream = Items<ActionType>;
    type DoExchangeStream = Items<FlightData>;

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Self::HandshakeStream> {
        Err(unimplemented(
            "Handshake is not offered: calls need no session",
        ))
    }

    async fn list_flights(&self, request: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        resolve::check_serving(&self.shared)?;
        Ok(items(info::list_flights(
            &self.shared,
            &resolve::peer(request.extensions()),
            &request.get_ref().expression,
        )?))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        resolve::check_serving(&self.shared)?;
        let peer = resolve::peer(request.extensions());
        Ok(Response::new(
            info::get_flight_info(&self.shared, &peer, request.into_inner()).await?,
        ))
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<PollInfo> {
        Err(unimplemented(
            "PollFlightInfo is not offered: GetFlightInfo answers at once",
        ))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        resolve::check_serving(&self.shared)?;
        let peer = resolve::peer(request.extensions());
        Ok(Response::new(info::get_schema(
            &self.shared,
            &peer,
            request.get_ref(),
        )?))
    }

    async fn do_get(&self, _: Request<Ticket>) -> Answer<Self::DoGetStream> {
        Err(unimplemented("DoGet is served over a raw body"))
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        resolve::check_serving(&self.shared)?;
        let peer = resolve::peer(request.extensions());
        Ok(Response::new(
            put::respond(&self.shared, &peer, request.into_inner()).await?,
        ))
    }

    async fn do_action(&self, request: Request<Action>) -> Answer<Self::DoActionStream> {
        resolve::check_serving(&self.shared)?;
        let peer = resolve::peer(request.extensions());
        let action = request.into_inner();
        match action.r#type.as_str() {
            "offsets" => Ok(items(vec![arrow_flight::Result::new(
                offsets::answer(&self.shared, &peer, &action.body).await?,
            )])),
            other => {
                sql::check_action(other)?;
                Err(invalid(format!(
                    "there is no action {other:?}: ListActions names them"
                )))
            }
        }
    }

    async fn list_actions(&self, _: Request<Empty>) -> Answer<Self::ListActionsStream> {
        let description = "Log start, high watermark, bytes and incarnation of a stream's partitions; times looked up; long poll. JSON in and out.";
        Ok(items(vec![ActionType {
            r#type: "offsets".to_owned(),
            description: description.to_owned(),
        }]))
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Answer<Self::DoExchangeStream> {
        Err(unimplemented(
            "DoExchange is not offered: use DoGet and DoPut",
        ))
    }
}
