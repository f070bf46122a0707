//! Weir is asked in raw bytes what Apache Kafka was asked, and each difference must have its verdict.

use cluster_tests::local_cluster::WeirDev;
use cluster_tests::probe;
use cluster_tests::probe::record::{self, Difference, Findings};
use cluster_tests::probe::verdicts::Verdicts;
use cluster_tests::workspace;

#[test]
fn every_difference_from_kafka_has_a_verdict() {
    let kafka =
        Findings::load(&record::record_file()).expect("the record of Apache Kafka is in the repository");
    let mut dev = WeirDev::start("probe");
    let address = dev.bootstrap();
    let weir = probe::observe(&address, Some(&kafka.announced), || dev.restart());
    assert_eq!(
        weir.request_crc, kafka.request_crc,
        "the requests of the probe were changed: `cargo xtask probe --record` asks Apache Kafka anew"
    );
    assert!(kafka.len() > 4_000, "the record holds {} answers", kafka.len());
    let differences = record::differences(&kafka, &weir);
    let verdicts = Verdicts::load().expect("docs/differences.md has the table of verdicts");
    let open: Vec<String> = verdicts
        .without_verdict(&differences)
        .into_iter()
        .map(|Difference { name, versions, kafka, other }| {
            format!("{name} (versions {versions}): Kafka {kafka}, Weir {other}")
        })
        .collect();
    assert!(
        open.is_empty(),
        "{} differences without a row in docs/differences.md:\n{}",
        open.len(),
        open.join("\n")
    );
    let stale = verdicts.stale(&differences);
    assert!(stale.is_empty(), "docs/differences.md explains what is no difference any more: {stale:?}");
}

#[test]
fn the_readme_counts_the_answers_of_the_record() {
    let kafka =
        Findings::load(&record::record_file()).expect("the record of Apache Kafka is in the repository");
    let row = format!("(`cargo xtask probe`) | {},{:03} |", kafka.len() / 1_000, kafka.len() % 1_000);
    let readme = std::fs::read_to_string(workspace::root().join("README.md")).expect("the README is there");
    assert!(readme.contains(&row), "README.md does not say: {row}");
}
