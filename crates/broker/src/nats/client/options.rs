//! Addresses of the servers, and the credentials of the broker.
use super::Failure;
use super::reason::Reason;
use super::settings::{NatsSettings, NatsTls, shown};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::{KeyPair, KeyPairType};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::fmt;
use std::net::IpAddr;
use url::Url;

const DEFAULT_PORT: u16 = 4222;

/// How to connect.
pub(crate) struct Options {
    /// At least one.
    pub(super) servers: Vec<Server>,
    login: Login,
    pub(super) tls: Option<NatsTls>,
    /// Name of the connection in the server's monitoring.
    name: String,
    /// Whether the server may send us what we publish.
    echo: bool,
}

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) requires_tls: bool,
    /// The name that the server's certificate must have.
    pub(super) tls_name: String,
    login: Option<Login>,
}

#[derive(Clone, PartialEq, Eq)]
enum Login {
    None,
    User {
        user: String,
        password: String,
    },
    Token(String),
    /// Seed of an nkey.
    Nkey(String),
    /// JWT of a user and the seed of its nkey.
    Jwt {
        jwt: String,
        seed: String,
    },
}

/// Never shows what is secret.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::User { .. } => "User",
            Self::Token(_) => "Token",
            Self::Nkey(_) => "Nkey",
            Self::Jwt { .. } => "Jwt",
        })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Options {
    /// Reads the settings.
    ///
    /// # Errors
    /// [`Reason::Settings`] with what cannot be used.
    pub(crate) fn new(settings: &NatsSettings, name: String, echo: bool) -> Result<Self, Failure> {
        let servers: Vec<_> = settings
            .servers
            .iter()
            .map(|text| Server::parse(text))
            .collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err(unusable(
                "no server is configured: name one in nats.servers".to_owned(),
            ));
        }
        Ok(Self {
            servers,
            login: Login::of(settings)?,
            tls: settings.tls.clone(),
            name,
            echo,
        })
    }

    /// The `CONNECT` line for a server that sent this nonce.
    ///
    /// # Errors
    /// [`Reason::Settings`] when the nkey cannot sign.
    pub(super) fn connect_line(
        &self,
        server: &Server,
        is_tls: bool,
        nonce: &str,
    ) -> Result<String, Failure> {
        let mut connect = json!({
            "verbose": false,
            "pedantic": false,
            "tls_required": is_tls,
            "name": self.name,
            "lang": "rust",
            "version": env!("CARGO_PKG_VERSION"),
            "protocol": 1,
            "echo": self.echo,
            "headers": true,
            "no_responders": true,
        });
        // Settings win over the address.
        let login = match &server.login {
            Some(login) if self.login == Login::None => login,
            _ => &self.login,
        };
        login.put(&mut connect, nonce)?;
        Ok(format!("CONNECT {connect}\r\n"))
    }
}

impl Server {
    fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = |why: &str| {
            unusable(format!(
                "{:?} is not a NATS address ({why}): write nats://host:port",
                shown(text)
            ))
        };
        let whole = if text.contains("://") {
            text.to_owned()
        } else {
            format!("nats://{text}")
        };
        let url = Url::parse(&whole).map_err(|error| wrong(&error.to_string()))?;
        let requires_tls = match url.scheme() {
            "nats" => false,
            "tls" => true,
            other => return Err(wrong(&format!("scheme {other:?}, not nats or tls"))),
        };
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("it names no host"))?;
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let decoded = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let login = match (url.username(), url.password()) {
            ("", None) => None,
            (token, None) => Some(Login::Token(decoded(token))),
            (user, Some(password)) => Some(Login::User {
                user: decoded(user),
                password: decoded(password),
            }),
        };
        Ok(Self {
            tls_name: host.clone(),
            host,
            port: url.port().unwrap_or(DEFAULT_PORT),
            requires_tls,
            login,
        })
    }

    /// Another server of the same deployment, by the `host:port` that this one gave; `None` when it is not one.
    pub(super) fn sibling(&self, address: &str) -> Option<Self> {
        let mut sibling = Self::parse(address).ok()?;
        sibling.requires_tls = self.requires_tls;
        sibling.login.clone_from(&self.login);
        // Certificates are for names: a server that is known by its number has the certificate of the one we know by name.
        if sibling.host.parse::<IpAddr>().is_ok() && self.tls_name.parse::<IpAddr>().is_err() {
            sibling.tls_name.clone_from(&self.tls_name);
        }
        Some(sibling)
    }

    /// Whether it is the same place.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }
}

impl Login {
    /// The configured kind of credentials; at most one.
    fn of(settings: &NatsSettings) -> Result<Self, Failure> {
        if let Some(credentials) = &settings.credentials {
            let section = |name| {
                section(credentials, name)
                    .ok_or_else(|| unusable(format!("the credentials have no section {name:?}")))
            };
            let (jwt, seed) = (section("NATS USER JWT")?, section("USER NKEY SEED")?);
            key_pair(&seed)?;
            return Ok(Self::Jwt { jwt, seed });
        }
        if let Some(user) = &settings.user {
            return Ok(Self::User {
                user: user.clone(),
                password: settings.password.clone().unwrap_or_default(),
            });
        }
        Ok(match (&settings.token, &settings.nkey) {
            (Some(token), _) => Self::Token(token.clone()),
            (None, Some(seed)) => {
                key_pair(seed)?;
                Self::Nkey(seed.clone())
            }
            (None, None) => Self::None,
        })
    }

    /// Adds its fields to the document of `CONNECT`.
    fn put(&self, connect: &mut Value, nonce: &str) -> Result<(), Failure> {
        match self {
            Self::None => {}
            Self::User { user, password } => {
                connect["user"] = user.as_str().into();
                connect["pass"] = password.as_str().into();
            }
            Self::Token(token) => connect["auth_token"] = token.as_str().into(),
            Self::Nkey(seed) => {
                connect["nkey"] = key_pair(seed)?.public_key().into();
                connect["sig"] = signature(seed, nonce)?.into();
            }
            Self::Jwt { jwt, seed } => {
                connect["jwt"] = jwt.as_str().into();
                connect["sig"] = signature(seed, nonce)?.into();
            }
        }
        Ok(())
    }
}

fn key_pair(seed: &str) -> Result<KeyPair, Failure> {
    let pair = KeyPair::from_seed(seed)
        .map_err(|error| unusable(format!("the nkey seed cannot be used: {error}")))?;
    if pair.key_pair_type() != KeyPairType::User {
        return Err(unusable(
            "the nkey seed is not that of a user: it must begin with SU".to_owned(),
        ));
    }
    Ok(pair)
}

fn signature(seed: &str, nonce: &str) -> Result<String, Failure> {
    let signed = key_pair(seed)?
        .sign(nonce.as_bytes())
        .map_err(|error| unusable(format!("the nkey cannot sign: {error}")))?;
    Ok(URL_SAFE_NO_PAD.encode(signed))
}

/// Content of the section of a credentials file that begins with `-----BEGIN name-----`.
fn section(text: &str, name: &str) -> Option<String> {
    let is_edge = |line: &str| line.starts_with("---");
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| is_edge(line) && line.contains("BEGIN") && line.contains(name))?;
    let content: String = lines.take_while(|line| !is_edge(line)).collect();
    (!content.is_empty()).then_some(content)
}

fn unusable(text: String) -> Failure {
    Failure::new(Reason::Settings, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> Server {
        Server::parse(text).unwrap()
    }

    #[test]
    fn addresses_are_read() {
        for (text, shown, tls) in [
            ("nats://one:4333", "one:4333", false),
            ("tls://two", "two:4222", true),
            ("three:1", "three:1", false),
            ("four", "four:4222", false),
            ("nats://[::1]:5", "[::1]:5", false),
            ("127.0.0.1:6", "127.0.0.1:6", false),
        ] {
            let server = server(text);
            assert_eq!(
                (server.to_string(), server.requires_tls),
                (shown.to_owned(), tls)
            );
            assert_eq!(server.login, None);
        }
        for bad in ["ws://one:1", "nats://", "nats://one:x", ""] {
            let failure = Server::parse(bad).unwrap_err();
            assert_eq!(failure.reason, Reason::Settings, "{bad}");
        }
    }

    #[test]
    fn what_an_address_says_of_its_user_is_decoded_and_never_shown() {
        let user = server("nats://u%40x:p%3Aw@one:1").login;
        let expected = Login::User {
            user: "u@x".into(),
            password: "p:w".into(),
        };
        assert_eq!(user, Some(expected));
        assert_eq!(
            server("nats://secret@one").login,
            Some(Login::Token("secret".into()))
        );
        assert!(!format!("{:?}", server("nats://secret@one")).contains("secret"));
        let failure = Server::parse("ws://u:secret@one").unwrap_err();
        assert!(!failure.text.contains("secret"), "{failure:?}");
    }

    #[test]
    fn a_sibling_has_the_login_and_the_certificate_name_of_the_server_that_named_it() {
        let first = server("tls://u:p@name:1");
        let by_number = first.sibling("10.0.0.1:2").unwrap();
        assert_eq!((&by_number.host[..], by_number.port), ("10.0.0.1", 2));
        assert_eq!(
            (&by_number.tls_name[..], &by_number.login),
            ("name", &first.login)
        );
        assert!(by_number.requires_tls);
        assert_eq!(first.sibling("other:3").unwrap().tls_name, "other");
        assert_eq!(first.sibling("\u{0}"), None);
    }

    #[test]
    fn sections_of_credentials_are_found() {
        let text = "-----BEGIN NATS USER JWT-----\nabc\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n SUX \n------END USER NKEY SEED------\n";
        assert_eq!(section(text, "NATS USER JWT").as_deref(), Some("abc"));
        assert_eq!(section(text, "USER NKEY SEED").as_deref(), Some("SUX"));
        assert_eq!(section(text, "OTHER"), None);
    }
}
