//! A small Kafka client for the command line and for tests: bootstrap list, one connection per node, bounded, with time-outs.
//!
//! It speaks every API of the codec at the highest version that both sides know. Requests of one connection run one after
//! the other. It never retries by itself: an error names the node and what happened, and the caller decides.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kafka_wire_core::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use kafka_wire_core::{DecodeError, EncodeError, ErrorCode, Request, Str};
use parking_lot::Mutex;

pub use crate::client_connection::Connection;
use crate::config::HostPort;

/// How a [`Client`] behaves.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Addresses to begin with; the first that answers is used.
    pub bootstrap: Vec<HostPort>,
    /// The client id of all requests.
    pub client_id: String,
    /// Limit for name look-up, connecting and ApiVersions together, per address.
    pub connect_timeout: Duration,
    /// Limit for one request, from sending to the whole response.
    pub request_timeout: Duration,
    /// Largest response in bytes.
    pub response_bytes_max: usize,
}

impl ClientConfig {
    /// Defaults for these addresses.
    pub fn new(bootstrap: Vec<HostPort>) -> Self {
        Self {
            bootstrap,
            client_id: "weir".to_owned(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            response_bytes_max: 256 << 20,
        }
    }
}

/// Why a request of the client failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No address of the list answered.
    #[error("no broker answered: {}", join(.0))]
    Unreachable(Vec<(HostPort, ClientError)>),
    /// The bootstrap list is empty.
    #[error("no address to connect to")]
    NoAddress,
    /// A name has no address, or connecting or the socket failed.
    #[error("{address}: {source}")]
    Io {
        /// The node.
        address: HostPort,
        /// What failed.
        source: std::io::Error,
    },
    /// The node closed the connection; Kafka does so with a request that it does not understand.
    #[error("{address} closed the connection during {during}")]
    Closed {
        /// The node.
        address: HostPort,
        /// The API that was called.
        during: &'static str,
    },
    /// No answer in time.
    #[error("{address} did not answer {during} within {after:?}")]
    Timeout {
        /// The node.
        address: HostPort,
        /// The API that was called.
        during: &'static str,
        /// The limit.
        after: Duration,
    },
    /// The node does not serve the API in a version that the client knows.
    #[error("{address} does not serve {api} in a version between {min} and {max}")]
    UnsupportedVersion {
        /// The node.
        address: HostPort,
        /// The API.
        api: &'static str,
        /// Lowest version of the client.
        min: i16,
        /// Highest version of the client.
        max: i16,
    },
    /// The response cannot be read.
    #[error("{address} answered {api} with bytes that cannot be read: {error}")]
    Decode {
        /// The node.
        address: HostPort,
        /// The API.
        api: &'static str,
        /// What is wrong.
        error: DecodeError,
    },
    /// The request cannot be written in the common version.
    #[error("{api} cannot be written in version {version}: {error}")]
    Encode {
        /// The API.
        api: &'static str,
        /// The version.
        version: i16,
        /// What is wrong.
        error: EncodeError,
    },
    /// A response of an impossible or too large size, or for another request.
    #[error("{address} broke the protocol: {what}")]
    Protocol {
        /// The node.
        address: HostPort,
        /// What came.
        what: String,
    },
    /// The cluster answered with an error.
    #[error("{what}: {}", code.name())]
    Kafka {
        /// What was asked for.
        what: String,
        /// The answer.
        code: ErrorCode,
    },
    /// The node is not in the cluster's list.
    #[error("node {0} is not in the cluster")]
    UnknownNode(i32),
}

impl ClientError {
    /// Whether the cluster could not be reached at all, as opposed to having said no.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::NoAddress
            | Self::Io { .. }
            | Self::Closed { .. }
            | Self::Timeout { .. } => true,
            Self::UnsupportedVersion { .. }
            | Self::Decode { .. }
            | Self::Encode { .. }
            | Self::Protocol { .. }
            | Self::Kafka { .. }
            | Self::UnknownNode(_) => false,
        }
    }
}

fn join(tried: &[(HostPort, ClientError)]) -> String {
    tried.iter().map(|(_, error)| error.to_string()).collect::<Vec<_>>().join("; ")
}

/// A node of the cluster as Metadata tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    /// The node's id.
    pub id: i32,
    /// Its advertised address.
    pub address: HostPort,
}

/// A client of one cluster.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    /// The connection for requests that any node answers.
    any: tokio::sync::Mutex<Option<Arc<Connection>>>,
    /// Connections to nodes that were asked for by id; as many as the cluster has nodes at most.
    by_node: tokio::sync::Mutex<HashMap<i32, Arc<Connection>>>,
    nodes: Mutex<BTreeMap<i32, HostPort>>,
}

impl Client {
    /// Connects to the first address that answers.
    pub async fn connect(config: ClientConfig) -> Result<Self, ClientError> {
        let client =
            Self { config, any: Default::default(), by_node: Default::default(), nodes: Default::default() };
        client.any().await?;
        Ok(client)
    }

    /// The configuration.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// A connection to some node.
    pub async fn any(&self) -> Result<Arc<Connection>, ClientError> {
        let mut any = self.any.lock().await;
        if let Some(connection) = any.as_ref().filter(|connection| connection.is_open()) {
            return Ok(Arc::clone(connection));
        }
        let mut tried = Vec::new();
        for address in &self.config.bootstrap {
            match Connection::open(address.clone(), &self.config).await {
                Ok(connection) => {
                    let connection = Arc::new(connection);
                    *any = Some(Arc::clone(&connection));
                    return Ok(connection);
                }
                Err(error) => tried.push((address.clone(), error)),
            }
        }
        Err(if tried.is_empty() { ClientError::NoAddress } else { ClientError::Unreachable(tried) })
    }

    /// A connection to the node with this id; asks for Metadata when the node is not known yet.
    pub async fn node(&self, id: i32) -> Result<Arc<Connection>, ClientError> {
        let mut by_node = self.by_node.lock().await;
        by_node.retain(|_, connection| connection.is_open());
        if let Some(connection) = by_node.get(&id) {
            return Ok(Arc::clone(connection));
        }
        let known = self.nodes.lock().get(&id).cloned();
        let address = match known {
            Some(address) => address,
            None => {
                self.metadata(Some(&[])).await?;
                self.nodes.lock().get(&id).cloned().ok_or(ClientError::UnknownNode(id))?
            }
        };
        let connection = Arc::new(Connection::open(address, &self.config).await?);
        by_node.insert(id, Arc::clone(&connection));
        Ok(connection)
    }

    /// Calls any node at the highest common version.
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        self.any().await?.call(request).await
    }

    /// Calls the node with this id at the highest common version.
    pub async fn call_node<R: Request>(&self, id: i32, request: &R) -> Result<R::Response, ClientError> {
        self.node(id).await?.call(request).await
    }

    /// Metadata of these topics, of all with `None`; never creates a topic. Learns the addresses of the nodes.
    pub async fn metadata(&self, topics: Option<&[&str]>) -> Result<MetadataResponse, ClientError> {
        let named = |name: &&str| MetadataRequestTopic {
            name: Some(Str::from(*name)),
            ..MetadataRequestTopic::default()
        };
        let request = MetadataRequest {
            topics: topics.map(|topics| topics.iter().map(named).collect()),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        let response = self.call(&request).await?;
        *self.nodes.lock() = response
            .brokers
            .iter()
            .filter_map(|broker| {
                let port = u16::try_from(broker.port).ok()?;
                Some((broker.node_id, HostPort::new(broker.host.to_string(), port)))
            })
            .collect();
        Ok(response)
    }

    /// The nodes of the cluster.
    pub async fn cluster_nodes(&self) -> Result<Vec<NodeAddress>, ClientError> {
        self.metadata(Some(&[])).await?;
        let nodes = self.nodes.lock();
        Ok(nodes.iter().map(|(id, address)| NodeAddress { id: *id, address: address.clone() }).collect())
    }

    /// The node that Metadata names as controller.
    pub async fn controller(&self) -> Result<i32, ClientError> {
        Ok(self.metadata(Some(&[])).await?.controller_id)
    }

    /// The node that leads a partition.
    pub async fn leader(&self, topic: &str, partition: i32) -> Result<i32, ClientError> {
        let response = self.metadata(Some(&[topic])).await?;
        let failed =
            |code| ClientError::Kafka { what: format!("find the leader of {topic}-{partition}"), code };
        let found = response
            .topics
            .iter()
            .find(|t| t.name.as_deref() == Some(topic))
            .ok_or_else(|| failed(ErrorCode::UnknownTopicOrPartition))?;
        if !found.error_code.is_none() {
            return Err(failed(found.error_code));
        }
        let found = found
            .partitions
            .iter()
            .find(|p| p.partition_index == partition)
            .ok_or_else(|| failed(ErrorCode::UnknownTopicOrPartition))?;
        if found.leader_id < 0 {
            return Err(failed(ErrorCode::LeaderNotAvailable));
        }
        Ok(found.leader_id)
    }
}
