//! Apache Kafka itself runs beside us: the reference that the other tests and the developers compare with.

use cluster_tests::clients::{kafka_tool, kcat, kcat_read};
use cluster_tests::oracle::broker::{BrokerOptions, KafkaCluster};
use cluster_tests::oracle::{schemas, tools};

#[test]
fn kafka_starts_serves_and_stops() {
    let properties = vec![("num.partitions".to_owned(), "2".to_owned())];
    let cluster = KafkaCluster::start(&BrokerOptions { properties, ..BrokerOptions::default() }).unwrap();
    let at = cluster.bootstrap();
    kafka_tool("kafka-topics", &at, &["--create", "--topic", "reference"], b"");
    kcat(&at, &["-P", "-t", "reference", "-K", ":", "-X", "acks=all"], b"k:v1\nk:v2\n");
    let values: Vec<String> = kcat_read(&at, "reference").into_iter().map(|record| record.value).collect();
    assert_eq!(values, ["v1", "v2"]);

    let data = cluster.dir().to_path_buf();
    let logs: Vec<String> = (0..2)
        .map(|partition| data.join(format!("node-1/data/reference-{partition}/00000000000000000000.log")))
        .map(|path| path.display().to_string())
        .collect();
    let dump = tools::output("kafka-dump-log", &["--print-data-log", "--files", &logs.join(",")]).unwrap();
    assert!(dump.contains("payload: v2"), "{dump}");
    cluster.stop().unwrap();
    assert!(!data.exists());
}

#[test]
fn schemas_come_from_the_clients_jar() {
    let text = schemas::describe("Produce", Some(13)).unwrap();
    assert!(text.contains("ProduceRequest, API key 0, versions 3-13, flexible 9+"), "{text}");
    assert!(text.contains("TopicId: uuid"), "{text}");
    assert!(schemas::describe("NoSuchApi", None).is_err());
}
