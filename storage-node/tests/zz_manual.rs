#![allow(warnings, clippy::all)]
mod fake_controller;
use fake_controller::*;
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manual() {
    let Ok(port) = std::env::var("G_PORT") else { return };
    telemetry::init_logging(&telemetry::LogConfig {
        format: telemetry::LogFormat::Text,
        filter: std::env::var("G_LOG").unwrap_or("info".into()),
    })
    .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start();
    let files = quic_transport::pki::CredentialFiles::in_directory(&dir.path().join("c"));
    std::fs::create_dir_all(dir.path().join("c")).unwrap();
    controller.cluster.credentials(quic_transport::Role::StorageNode, 1).store(&files).unwrap();
    let mut config = storage_node::Config {
        cluster_id: CLUSTER.into(),
        node_id: 1,
        data_dirs: vec![dir.path().join("data")],
        controllers: vec![storage_node::config::ControllerAddress {
            id: 1,
            address: controller.address().to_string(),
        }],
        listeners: vec![storage_node::config::Listener {
            name: "PLAINTEXT".into(),
            bind: format!("127.0.0.1:{port}").parse().unwrap(),
            advertised: None,
        }],
        certificates: storage_node::config::Certificates {
            ca: files.authority,
            certificate: files.certificate,
            key: files.key,
        },
        ..Default::default()
    };
    config.kafka.insert("auto.create.topics.enable".into(), "true".into());
    config.control.bind = "127.0.0.1:0".parse().unwrap();
    config.http.address = "127.0.0.1:39292".parse().unwrap();
    let node = storage_node::start(config).await.unwrap();
    node.ready().await.unwrap();
    println!("ready");
    tokio::signal::ctrl_c().await;
    node.shutdown().await;
}
