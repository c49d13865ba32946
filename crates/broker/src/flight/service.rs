//! The Flight service: `DoGet` and the answers that grow with streams and partitions over raw bodies, everything else through
//! tonic.
use super::context::FlightContext;
use super::offsets;
use super::refusal::{invalid, unimplemented};
use super::whole::BodyEnd;
use super::{get, info, list, put, resolve, sql, unary};
use crate::tls::Peer;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use prost::Message;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::{Request, Response, Status, Streaming};

/// Largest message taken in: one record batch of a `DoPut`, bytes. 64 MiB of records and room for their heads.
pub const MAX_MESSAGE_BYTES: usize = 72 << 20;
/// Paths of the methods that are served over raw bodies.
const DO_GET: &str = "/arrow.flight.protocol.FlightService/DoGet";
const GET_FLIGHT_INFO: &str = "/arrow.flight.protocol.FlightService/GetFlightInfo";
const LIST_FLIGHTS: &str = "/arrow.flight.protocol.FlightService/ListFlights";
const DO_PUT: &str = "/arrow.flight.protocol.FlightService/DoPut";
const DO_ACTION: &str = "/arrow.flight.protocol.FlightService/DoAction";

/// The service as tonic's router takes it.
///
/// `DoGet` is answered here, with column buffers handed to the connection as they are, and so are answers that may be large:
/// encoded on threads of their own, and charged until the client has read them. The rest goes to the generated server.
#[derive(Clone, Debug)]
pub(crate) struct FlightRouter {
    context: Arc<FlightContext>,
    rest: FlightServiceServer<Handler>,
}

impl FlightRouter {
    /// The service of a broker.
    pub(crate) fn new(context: FlightContext) -> Self {
        let context = Arc::new(context);
        let handler = Handler {
            context: context.clone(),
        };
        let rest = FlightServiceServer::new(handler)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Self { context, rest }
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
        let context = self.context.clone();
        match request.uri().path() {
            DO_GET => Box::pin(answered(get::respond(context, request))),
            GET_FLIGHT_INFO => Box::pin(answered(flight_info(context, request))),
            LIST_FLIGHTS => Box::pin(answered(list_flights(context, request))),
            DO_ACTION => Box::pin(answered(do_action(context, request))),
            DO_PUT => self.rest.call(BodyEnd::watch(request)),
            _ => self.rest.call(request),
        }
    }
}

async fn answered(
    body: impl Future<Output = Result<Body, Status>>,
) -> Result<http::Response<Body>, Infallible> {
    let body = match body.await {
        Ok(body) => body,
        Err(status) => return Ok(status.into_http()),
    };
    let mut response = http::Response::new(body);
    let grpc = http::HeaderValue::from_static("application/grpc");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, grpc);
    Ok(response)
}

/// Whose call it is, and its one message.
async fn read<T: Message + Default>(
    context: &FlightContext,
    request: http::Request<Body>,
) -> Result<(Peer, T), Status> {
    resolve::check_serving(context)?;
    let peer = resolve::peer(request.extensions());
    let message = unary::read("request", request.into_body(), context.message_bytes).await?;
    let message = T::decode(message);
    Ok((
        peer,
        message.map_err(|error| invalid(format!("the request cannot be read: {error}")))?,
    ))
}

async fn flight_info(
    context: Arc<FlightContext>,
    request: http::Request<Body>,
) -> Result<Body, Status> {
    let (peer, descriptor) = read::<FlightDescriptor>(&context, request).await?;
    let info = info::get_flight_info(&context, &peer, descriptor).await?;
    unary::reply(&context, &peer, &info)
}

async fn list_flights(
    context: Arc<FlightContext>,
    request: http::Request<Body>,
) -> Result<Body, Status> {
    let (peer, criteria) = read::<Criteria>(&context, request).await?;
    list::respond(context, peer, criteria).await
}

async fn do_action(
    context: Arc<FlightContext>,
    request: http::Request<Body>,
) -> Result<Body, Status> {
    let (peer, action) = read::<Action>(&context, request).await?;
    if action.r#type != "offsets" {
        sql::check_action(&action.r#type)?;
        return Err(invalid(format!(
            "there is no action {:?}: ListActions names them",
            action.r#type
        )));
    }
    let answer = offsets::answer(&context, &peer, &action.body).await?;
    let answer = arrow_flight::Result::new(answer).encode_to_vec();
    unary::reply(&context, &peer, &answer)
}

/// Answers what is not served over raw bodies.
#[derive(Debug)]
pub struct Handler {
    context: Arc<FlightContext>,
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

    async fn list_flights(&self, _: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        Err(unimplemented("ListFlights is served over a raw body"))
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        Err(unimplemented("GetFlightInfo is served over a raw body"))
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<PollInfo> {
        Err(unimplemented(
            "PollFlightInfo is not offered: GetFlightInfo answers at once",
        ))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        resolve::check_serving(&self.context)?;
        let peer = resolve::peer(request.extensions());
        Ok(Response::new(info::get_schema(
            &self.context,
            &peer,
            request.get_ref(),
        )?))
    }

    async fn do_get(&self, _: Request<Ticket>) -> Answer<Self::DoGetStream> {
        Err(unimplemented("DoGet is served over a raw body"))
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        resolve::check_serving(&self.context)?;
        let peer = resolve::peer(request.extensions());
        let end = request.extensions().get::<BodyEnd>().cloned();
        let messages = request.into_inner();
        let results = put::respond(&self.context, &peer, messages, end.unwrap_or_default()).await?;
        Ok(Response::new(results))
    }

    async fn do_action(&self, _: Request<Action>) -> Answer<Self::DoActionStream> {
        Err(unimplemented("DoAction is served over a raw body"))
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
