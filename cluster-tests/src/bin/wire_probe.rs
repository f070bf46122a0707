//! The command `cargo xtask probe`: asks Weir what Apache Kafka was asked, or records Apache Kafka anew.

#![expect(clippy::print_stdout, reason = "a program for people prints")]

use std::process::ExitCode;

use cluster_tests::local_cluster::{Against, WeirDev};
use cluster_tests::oracle::broker::{BrokerOptions, KafkaCluster};
use cluster_tests::oracle::tools;
use cluster_tests::probe::record::{self, Difference, Findings};
use cluster_tests::probe::verdicts::Verdicts;
use cluster_tests::probe::{self};

const USAGE: &str = "\
usage: wire-probe [--against weir]    ask Weir, print how it differs from the record of Apache Kafka
       wire-probe --against kafka     ask Apache Kafka, print how it differs from its own record
       wire-probe --record            ask Apache Kafka, write the record";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match (Against::from_args(&args), args.as_slice()) {
        (_, ["--record"]) => record_kafka(),
        (Some((Against::Weir, [])), _) => compare_weir(),
        (Some((Against::Kafka, [])), _) => repeat_kafka(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn ask_kafka() -> Result<Findings, String> {
    let mut cluster = KafkaCluster::start(&BrokerOptions::default()).map_err(|error| error.to_string())?;
    let address = cluster.bootstrap();
    let mut findings = probe::observe(&address, None, || {
        cluster.restart().unwrap_or_else(|error| panic!("Apache Kafka does not restart: {error}"));
    });
    let version = tools::output("kafka-topics", &["--version"]).map_err(|error| error.to_string())?;
    findings.kafka_version = version.split_whitespace().next().unwrap_or_default().to_owned();
    cluster.stop().map_err(|error| error.to_string())?;
    Ok(findings)
}

fn record_kafka() -> Result<(), String> {
    let findings = ask_kafka()?;
    let file = record::record_file();
    findings.save(&file)?;
    println!("Apache Kafka {}: {} answers in {}", findings.kafka_version, findings.len(), file.display());
    Ok(())
}

fn repeat_kafka() -> Result<(), String> {
    let recorded = Findings::load(&record::record_file())?;
    let findings = ask_kafka()?;
    let differences = record::differences(&recorded, &findings);
    print_all(&differences.iter().collect::<Vec<_>>());
    println!("{}", record::tally(&recorded, &findings, &|_| false));
    if differences.is_empty() { Ok(()) } else { Err("Apache Kafka does not answer as it did".into()) }
}

fn compare_weir() -> Result<(), String> {
    let recorded = Findings::load(&record::record_file())?;
    let mut dev = WeirDev::start("wire_probe");
    let address = dev.bootstrap();
    let findings = probe::observe(&address, Some(&recorded.announced), || dev.restart());
    let differences = record::differences(&recorded, &findings);
    let verdicts = Verdicts::load()?;
    let open = verdicts.without_verdict(&differences);
    print_all(&open);
    let stale = verdicts.stale(&differences);
    for pattern in &stale {
        println!("`{pattern}` in docs/differences.md covers nothing any more");
    }
    println!(
        "{} answers, {} differences from Apache Kafka {}, {} without a verdict",
        findings.len(),
        differences.len(),
        recorded.kafka_version,
        open.len()
    );
    println!("{}", record::tally(&recorded, &findings, &|name| verdicts.covers(name)));
    if open.is_empty() && stale.is_empty() {
        Ok(())
    } else {
        Err("docs/differences.md is out of date".into())
    }
}

fn print_all(differences: &[&Difference]) {
    for Difference { name, versions, kafka, other } in differences {
        println!("{name}\n    versions {versions}: Kafka {kafka}, here {other}");
    }
}
