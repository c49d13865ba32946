//! A real nats-server, started by a test.
use super::LIMIT;
use bascule_broker::nats::NatsSettings;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Path of the nats-server, or `None` after saying that the test is skipped.
fn nats_server_path() -> Option<PathBuf> {
    let beside = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../.venv/bin/nats-server"
    ));
    let named = std::env::var_os("BASCULE_NATS_SERVER").map(PathBuf::from);
    let found = named.or_else(|| beside.exists().then_some(beside));
    if found.is_none() {
        assert!(
            std::env::var_os("BASCULE_REQUIRE_NATS").is_none(),
            "no nats-server: set BASCULE_NATS_SERVER to its path"
        );
        eprintln!(
            "SKIPPED: no nats-server; set BASCULE_NATS_SERVER to its path, or run `uv sync` at the root"
        );
    }
    found
}

/// A nats-server on a free port of its own choice; killed on drop.
pub struct NatsServer {
    path: PathBuf,
    pub port: u16,
    /// Where other servers of its cluster connect.
    pub cluster_port: Option<u16>,
    child: Child,
    config: Option<(TempDir, PathBuf)>,
}

impl NatsServer {
    pub fn start() -> Option<Self> {
        let path = nats_server_path()?;
        let (child, ports) = spawn(&path, -1, None).expect("nats-server did not start");
        Some(Self {
            path,
            port: ports.clients,
            cluster_port: None,
            child,
            config: None,
        })
    }

    /// One with more settings, in the form of its configuration file.
    pub fn with_config(config: &str) -> Option<Self> {
        let path = nats_server_path()?;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("nats.conf");
        std::fs::write(&file, config).unwrap();
        let config = Some((directory, file));
        let (child, ports) = spawn(&path, -1, config.as_ref()).expect("nats-server did not start");
        Some(Self {
            path,
            port: ports.clients,
            cluster_port: ports.cluster,
            child,
            config,
        })
    }

    /// Other settings from the next restart on.
    pub fn configure(&self, config: &str) {
        let (_, file) = self.config.as_ref().expect("a server with a configuration");
        std::fs::write(file, config).unwrap();
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// On the same port, as soon as nobody else has it.
    pub fn restart(&mut self) {
        let start = Instant::now();
        self.child = loop {
            if let Some((child, _)) = spawn(&self.path, self.port.into(), self.config.as_ref()) {
                break child;
            }
            assert!(start.elapsed() < LIMIT, "nats-server did not start again");
        };
    }

    pub async fn client(&self) -> async_nats::Client {
        async_nats::connect(self.url()).await.unwrap()
    }

    pub fn settings(&self) -> NatsSettings {
        NatsSettings {
            servers: vec![self.url()],
            ..NatsSettings::default()
        }
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server on a port, -1 = a free one, and gives the port; `None` when it ended, as it does when the port is taken.
fn spawn(path: &PathBuf, port: i32, config: Option<&(TempDir, PathBuf)>) -> Option<(Child, Ports)> {
    let reported = tempfile::tempdir().unwrap();
    let config = config.map(|(_, file)| ["-c".into(), file.clone().into_os_string()]);
    let mut child = Command::new(path)
        .args(config.into_iter().flatten())
        .args([
            "-a",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "--ports_file_dir",
        ])
        .arg(reported.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let file = reported
        .path()
        .join(format!("nats-server_{}.ports", child.id()));
    let start = Instant::now();
    loop {
        if let Some(ports) = reported_ports(&file) {
            return Some((child, ports));
        }
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        assert!(start.elapsed() < LIMIT, "nats-server reports no port");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where a server listens.
struct Ports {
    clients: u16,
    cluster: Option<u16>,
}

/// The ports in the file that a server writes once it listens; `None` while it is not there or half written.
fn reported_ports(file: &Path) -> Option<Ports> {
    let text = std::fs::read_to_string(file).ok()?;
    let ports: serde_json::Value = serde_json::from_str(&text).ok()?;
    let port = |place| {
        let url = ports.pointer(place)?.as_str()?;
        url.rsplit(':').next()?.parse().ok()
    };
    Some(Ports {
        clients: port("/nats/0")?,
        cluster: port("/cluster/0"),
    })
}
